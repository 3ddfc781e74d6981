// A table that another process owns, read through a read-only mapping of its file (mapped_header.h).
//
// A lookup copies the stored rows of a few hundred ids at a time, and uses the copies only once it has seen that their
// memory was not used again meanwhile; otherwise it begins those ids anew. It takes no lock, writes nothing that others
// see, and goes on with the last state when the owner is gone.
// Thread-safety: as RowSource. Ownership: make it with std::make_shared; whoever holds a RowSource capsule keeps the
// mapping alive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/mapped_header.h"
#include "paramserver/csrc/row_source.h"
#include "paramserver/csrc/status_counters.h"
#include "paramserver/csrc/table_state.h"
#include "paramserver/csrc/table_view.h"

namespace paramserver {

class MappedTable final : public RowSource, public std::enable_shared_from_this<MappedTable> {
 public:
  // `kernels`: null for the process's choice. Throws SharedFileError, SharedFileDamaged.
  explicit MappedTable(const std::string& path, const Kernels* kernels = nullptr);
  ~MappedTable() override;
  MappedTable(const MappedTable&) = delete;
  MappedTable& operator=(const MappedTable&) = delete;

  std::uint32_t dim() const noexcept override { return state_->dim; }
  std::uint64_t epoch() const noexcept override;
  Stored stored() const noexcept { return state_->stored; }
  std::size_t row_bytes() const noexcept { return state_->row_bytes; }
  std::string name() const { return {header().name, header().name_bytes}; }
  const char* instruction_set() const noexcept { return kernels_.name; }

  // The epochs held, ascending, each with its sequence.
  std::vector<std::pair<std::uint64_t, std::int64_t>> epochs() const;
  bool holds(std::uint64_t epoch) const;
  void default_row(float* out /*[dim]*/) const noexcept;
  // False once the owner has ended, however it did: what is here stays readable, and is the last there will be.
  bool owner_alive() const noexcept;
  const StatusCounters& counters() const noexcept { return counters_; }
  // How often ids were begun anew because their memory was used again meanwhile.
  std::uint64_t retries() const noexcept { return retries_.load(std::memory_order_relaxed); }

  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
              RowStatus* status) const noexcept override;
  void lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                     std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                     RowStatus* status) const noexcept override;
  // Rows as they are stored.
  void lookup_stored(const LookupContext& context, const std::int64_t* ids, std::size_t n,
                     std::byte* out /*[n, row_bytes]*/, RowStatus* status /*[n] or null*/) const noexcept;

 private:
  struct Scratch;

  const SharedHeader& header() const noexcept { return *reinterpret_cast<const SharedHeader*>(base_); }
  bool within_file(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  void check_header(const std::string& path, std::uint64_t file_bytes) const;

  // Calls take(rows, first, n) for the rows of all ids, in their order.
  template <class Take>
  void each(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowStatus* status,
            Take&& take) const noexcept;
  // The parts of one look, false when it must begin anew: a copy of the directory in force, then rows and statuses of n
  // ids as the epoch shows them.
  bool copy_directory(std::uint64_t turn, std::vector<std::byte>* directory) const noexcept;
  bool copy_rows(std::uint64_t epoch, const std::int64_t* ids, std::size_t n, Scratch& scratch) const noexcept;
  std::vector<std::byte> directory() const;
  // The stored row of a number, null when the number leads out of the file.
  const std::byte* row_at(RowNumber row) const noexcept;

  const Kernels& kernels_;
  int fd_ = -1;
  const std::byte* base_ = nullptr;
  std::uint64_t mapped_bytes_ = 0;
  const TableState* state_ = nullptr;
  std::vector<std::byte> default_row_;  // as stored
  mutable StatusCounters counters_;
  mutable std::atomic<std::uint64_t> retries_{0};
};

}  // namespace paramserver
