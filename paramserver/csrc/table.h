// An embedding table in RAM: ids of 64 bits to rows of `dim` numbers, read by any number of threads beside one writer.
//
// An update writes a fresh row and publishes its number with one store, so a reader sees the old row or the new one,
// whole. Old rows and old indexes are reclaimed when ReaderGate says that no reader can hold them. Readers take no lock
// and never wait; writers take turns on a mutex, and give way for a moment to readers that hold up many old rows.
// Ownership: make it with std::make_shared; whoever holds a RowSource capsule keeps it alive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "paramserver/csrc/bag_writer.h"
#include "paramserver/csrc/cold_tier.h"
#include "paramserver/csrc/id_index.h"
#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/quiescence.h"
#include "paramserver/csrc/row_source.h"
#include "paramserver/csrc/row_store.h"

namespace paramserver {

inline constexpr std::uint64_t kRowsMax = std::uint64_t{1} << 40;

struct TableOptions {
  std::uint32_t dim = 0;               // numbers in a row, 1 .. kDimMax
  Stored stored = Stored::kF32;        // how rows lie in memory
  std::uint64_t rows_hint = 0;         // rows to make room for at once
  const float* default_row = nullptr;  // [dim], copied; null: zeros
  bool huge_pages = true;              // ask the kernel for 2 MiB pages
  const Kernels* kernels = nullptr;    // null: the process's choice
};

struct TableStats {
  std::uint64_t rows = 0;         // live ids
  std::uint64_t rows_retired = 0; // superseded rows that a reader might still hold
  std::uint64_t bytes = 0;        // index and rows, as far as ever used
  bool huge_pages = false;        // the kernel accepted the advice for index and rows
  const char* instruction_set = "";
};

class Table final : public RowSource, public std::enable_shared_from_this<Table> {
 public:
  // Throws OptionError, RowValueError (default row), MemoryExhausted.
  explicit Table(const TableOptions& options);
  ~Table() override;

  std::uint32_t dim() const noexcept override { return dim_; }
  Stored stored() const noexcept { return stored_; }
  std::uint64_t size() const noexcept { return live_.load(std::memory_order_relaxed); }

  // Rows are rounded to the stored type; the last of equal ids wins. Returns how many ids were new. Throws
  // RowValueError before anything is written, MemoryExhausted with a prefix of the batch written.
  std::uint64_t upsert(const std::int64_t* ids /*[n]*/, const float* rows /*[n, dim]*/, std::size_t n);

  // Returns how many of the ids were here.
  std::uint64_t erase(const std::int64_t* ids /*[n]*/, std::size_t n);

  // The live ids, ascending as int64.
  std::vector<std::int64_t> ids() const;
  void default_row(float* out /*[dim]*/) const noexcept;
  TableStats stats() const;

  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
              RowStatus* status) const noexcept override;
  void lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                     std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                     RowStatus* status) const noexcept override;

 private:
  struct RetiredRow {
    RowNumber row;
    std::uint64_t turn;
  };
  struct RetiredIndex {
    std::unique_ptr<IdIndex> index;
    std::uint64_t turn = 0;
  };

  // The read path, in table_lookup.cc. `take(rows, first, n)` gets the rows of ids [first, first + n) in order.
  template <class Take>
  void resolve(const std::int64_t* ids, std::size_t n, RowStatus* status, Take&& take) const noexcept;

  void check_rows(const std::int64_t* ids, const float* rows, std::size_t n) const;
  bool put(std::int64_t id, const float* row);
  bool remove(std::int64_t id);
  void retire(RowNumber row);
  void rebuild(std::uint64_t rows);
  void reclaim();
  void reclaim_quiet();

  const std::uint32_t dim_;
  const Stored stored_;
  const bool huge_pages_;
  const std::uint64_t rows_hint_;
  const Kernels& kernels_;
  ReaderGate gate_;
  RowStore rows_;
  std::vector<std::byte> default_row_;  // as stored
  std::atomic<std::uint64_t> live_{0};
  std::atomic<IdIndex*> index_{nullptr};  // what readers see; the writer owns it through owned_index_

  mutable std::mutex writer_;
  std::unique_ptr<IdIndex> owned_index_;
  std::deque<RetiredRow> retired_rows_;
  std::deque<RetiredIndex> retired_indexes_;
};

// Throws BagError unless offsets begin at 0, never fall, and end at n.
void check_bags(const std::int32_t* offsets /*[bags + 1]*/, std::size_t bags, std::size_t n);

}  // namespace paramserver
