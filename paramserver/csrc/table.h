// An embedding table: ids of 64 bits to rows of `dim` numbers, read by any number of threads beside one writer.
//
// A write puts a fresh row in memory and publishes its number with one store, so a reader sees the old row or the new
// one, whole. Deltas are applied one after another, are seen by nobody until an epoch shows them, and can be undone
// while no epoch does (table_state.h says how versions of rows lie beside each other). Old rows, indexes and undo
// indexes are reclaimed when ReaderGate says that no reader can hold them. Readers take no lock and never wait; writers
// take turns on a mutex, and give way for a moment to readers that hold up many old rows.
// Ownership: make it with std::make_shared; whoever holds a RowSource capsule keeps it alive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "paramserver/csrc/cold_tier.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/id_index.h"
#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/row_source.h"
#include "paramserver/csrc/row_store.h"
#include "paramserver/csrc/table_reader.h"
#include "paramserver/csrc/table_state.h"

namespace paramserver {

inline constexpr std::uint64_t kRowsMax = std::uint64_t{1} << 40;

struct TableOptions {
  std::uint32_t dim = 0;               // numbers in a row, 1 .. kDimMax
  Stored stored = Stored::kF32;        // how rows lie in memory
  std::uint64_t rows_hint = 0;         // rows to make room for at once
  const float* default_row = nullptr;  // [dim], copied; null: zeros
  bool huge_pages = true;              // ask the kernel for 2 MiB pages
  const Kernels* kernels = nullptr;    // null: the process's choice
  std::int64_t base_sequence = 0;      // what the base state is; the first delta's sequence is one more
  double ttl_s = 0.0;                  // how long a row lives after the delta that wrote it; 0: for good
  std::uint32_t base_time_s = 0;       // when the base state was written, seconds since 1970; for ttl_s
  std::uint64_t admit_after = 1;       // deltas that must contain a new id before it is stored
  double apply_rows_per_s = 0.0;       // the fastest that a delta is applied; 0: as fast as it goes
  std::shared_ptr<Memory> memory = nullptr;  // null: anonymous
  std::unique_ptr<ColdTier> tier = nullptr;  // null: all rows in RAM
};

struct TableStats {
  std::uint64_t rows = 0;          // live ids of the newest delta applied
  std::uint64_t rows_retired = 0;  // superseded rows that a reader might still hold
  std::uint64_t rows_pending = 0;  // ids that too few deltas have contained so far
  std::uint64_t bytes_index = 0;   // the index, and old ones that a reader might still hold
  std::uint64_t bytes_rows = 0;    // rows as far as ever used, and the list of free ones
  std::uint64_t bytes_undo = 0;    // undo indexes of deltas that an older epoch is kept from
  std::uint64_t bytes_peak = 0;    // the most that all of these ever were at once
  bool huge_pages = false;         // the kernel accepted the advice for index and rows
  const char* instruction_set = "";
  std::uint64_t lookups = 0;       // calls
  StatusTally statuses{};          // ids looked up, by their RowStatus

  std::uint64_t bytes() const noexcept { return bytes_index + bytes_rows + bytes_undo; }
};

// What a table knows of one id at one epoch.
struct IdStory {
  RowState state;
  std::int64_t sequence = 0;  // of the delta that wrote the state; the base's for the base state
  std::uint32_t time_s = 0;   // when, 0 when the table does not keep times
  double expires_s = 0.0;     // 0: never
};

class Table final : public RowSource, public std::enable_shared_from_this<Table> {
 public:
  // Throws OptionError, RowValueError (default row), MemoryExhausted.
  explicit Table(TableOptions options);
  ~Table() override;

  std::uint32_t dim() const noexcept override { return dim_; }
  std::uint64_t epoch() const noexcept override;
  Stored stored() const noexcept { return stored_; }
  std::size_t row_bytes() const noexcept { return state_.row_bytes; }
  // Where the TableState lies in the table's memory.
  std::uint64_t state_offset() const noexcept { return state_region_.offset(); }
  // Live ids that epoch 0 shows, expired ones included until sweep() frees them.
  std::uint64_t size() const noexcept { return visible_rows_.load(std::memory_order_relaxed); }

  // --- The base state, until the first delta or epoch; EpochError afterwards -----------------------------------------
  // Rows are rounded to the stored type; the last of equal ids wins. Returns how many ids were new. Throws
  // RowValueError before anything is written, MemoryExhausted with a prefix of the batch written.
  std::uint64_t upsert(const std::int64_t* ids /*[n]*/, const float* rows /*[n, dim]*/, std::size_t n);
  // The same for rows as they are stored, taken byte for byte (table_load.cc). Of a table with a time to live each row
  // is as old as `times` says (null: as the base state), to a 63rd of that time. Throws OptionError with a tier.
  void load_rows(const std::int64_t* ids /*[n]*/, const std::byte* const* rows /*[n]*/, std::size_t n,
                 const std::uint32_t* times = nullptr /*[n]*/);
  // The default row as it is stored, before anybody reads.
  void load_default_row(const std::byte* row /*[row_bytes]*/) noexcept;
  // Returns how many of the ids were here.
  std::uint64_t erase(const std::int64_t* ids /*[n]*/, std::size_t n);
  // The same for rows that lie one after the other and come from nobody knows where. Returns how many ids were new.
  // Throws RowValueError for NaN and infinity, before anything is written.
  std::uint64_t add_rows(const std::int64_t* ids /*[n]*/, const std::byte* rows /*[n, row_bytes]*/, std::size_t n,
                         const std::uint32_t* times /*[n] or null*/);

  // --- Deltas and epochs (table_delta.cc) ----------------------------------------------------------------------------
  // All or nothing: rows, then deletes. `after` is what it builds on, and must be sequence(); it is less than
  // sequence - 1 when those between were abandoned. Throws EpochError, RowValueError, MemoryExhausted.
  void apply(std::int64_t sequence, std::int64_t after, const std::int64_t* ids /*[n]*/,
             const float* rows /*[n, dim]*/, std::size_t n, const std::int64_t* deletes /*[m]*/, std::size_t m,
             std::uint32_t time_s);
  // Shows the state after `sequence` as `epoch`, which must be newer than all before. Throws EpochError.
  void publish(std::uint64_t epoch, std::int64_t sequence);
  // Lets go of an epoch that is not the newest. Throws EpochError.
  void retire(std::uint64_t epoch);
  // Undoes the deltas after `sequence`, which no epoch may show. Throws EpochError.
  void revert(std::int64_t sequence);
  std::int64_t sequence() const;
  // Frees the rows that have expired by `now_s`, seconds since 1970. Returns how many.
  std::uint64_t sweep(std::uint32_t now_s);
  std::vector<std::pair<std::uint64_t, std::int64_t>> epochs() const;

  // --- With a cold tier (table_tier.cc) ------------------------------------------------------------------------------
  // Base rows: ids[i] lies in slot first_slot + i of the tier's base file, and was written at times[i] (null: with the
  // base). Throws EpochError once the table takes deltas, OptionError without a tier.
  void add_base(const std::int64_t* ids /*[n]*/, std::size_t n, std::uint64_t first_slot,
                const std::uint32_t* times /*[n] or null*/);
  // Moves rows that lookups asked for into RAM, as the tier's own thread does. Nothing without a tier.
  void maintain();

  // For the tier, with the writer lock held: rows that RAM has room for; whatever readers let go of is free again; an
  // id's newest state; a row in RAM; up to `rows_max` rows in RAM that only older epochs read, the oldest first; a row
  // to a slot that holds it; a cold row into RAM, of which there must be some.
  std::uint64_t rows_ram_free() const noexcept;
  void reclaim_ram();
  RowState newest(std::int64_t id) const noexcept;
  const std::byte* ram_row(RowNumber row) const noexcept { return rows_.at(row); }
  std::vector<RamRow> shelved_rows(std::size_t rows_max);
  void move_out(const RamRow& row, RowState home);
  RowNumber move_in(std::int64_t id, const std::byte* row);
  // Zeros without a tier.
  TierStats tier_stats() const;

  // --- Looking inside ------------------------------------------------------------------------------------------------
  // The live ids at an epoch, ascending as int64. Throws EpochError.
  std::vector<std::int64_t> ids(std::uint64_t epoch) const;
  // What is known of an id at an epoch; a row that has expired is told as it was. Throws EpochError.
  IdStory why(std::int64_t id, std::uint64_t epoch) const;
  // When each row was written, seconds since 1970, 0 for ids that have none; of a table with a time to live. Throws
  // EpochError.
  void times(const std::int64_t* ids /*[n]*/, std::size_t n, std::uint64_t epoch, std::uint32_t* out /*[n]*/) const;
  bool holds(std::uint64_t epoch) const noexcept;
  void default_row(float* out /*[dim]*/) const noexcept;
  TableStats stats() const;

  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
              RowStatus* status) const noexcept override;
  // Rows as they are stored.
  void lookup_stored(const LookupContext& context, const std::int64_t* ids, std::size_t n,
                     std::byte* out /*[n, row_bytes]*/, RowStatus* status) const noexcept;
  void lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                     std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                     RowStatus* status) const noexcept override;

 private:
  struct RetiredRow {
    RowState state;
    std::uint64_t turn;
  };
  // An index or a block that readers might still hold; of an undo index whose rows nobody else has, the rows too.
  struct Retired {
    std::uint64_t turn;
    std::unique_ptr<IdIndex> index;
    Region region;
    bool frees_rows;
  };
  // The undo index of an applied delta.
  struct Undo {
    std::unique_ptr<IdIndex> index;
    std::uint32_t version;
    bool reverted = false;                     // its states are back in the main index
    std::optional<std::uint64_t> unneeded{};   // the turn since which no epoch needs it
    bool unlinked = false;                     // no longer in force
    std::uint64_t first_in_ram = 0;            // no slot before it has a row in RAM; of a delta applied
  };
  struct Epoch {
    std::uint64_t epoch;
    std::int64_t sequence;
    std::uint32_t version;
  };
  // The base state, or what a delta made of the one before.
  struct Applied {
    std::int64_t sequence;
    std::uint32_t version;
    std::uint64_t rows;
  };
  // What one batch of writes has in common.
  struct Batch {
    std::uint32_t version;
    IdIndex* undo;  // null for the base state, which nobody is kept from
    std::uint32_t time_s;
    std::uint64_t admit_after;
    std::int64_t began_ns = 0;  // 0: writes as fast as it goes
  };

  // table.cc
  void check_rows(const std::int64_t* ids, const float* rows, std::size_t n) const;
  void check_takes_upserts() const;
  void encode(const float* row, std::byte* to) const noexcept;
  void write_rows(const Batch& batch, const std::int64_t* ids, const float* rows, std::size_t n);
  void write_deletes(const Batch& batch, const std::int64_t* ids, std::size_t n);
  bool stores(const Batch& batch, RowState old) const noexcept;
  void put(const Batch& batch, std::int64_t id, const float* row);
  void change(const Batch& batch, IndexSlot& slot, std::int64_t id, RowState to);
  RowState current(RowState state, std::uint32_t time_s) const noexcept;
  void give_way(const Batch& batch, std::size_t rows) const noexcept;
  // table_bulk.cc
  std::uint32_t base_version_of(std::uint32_t time_s) const noexcept;

  // table_tier.cc
  struct Spilled;
  void write_rows_tiered(const Batch& batch, const std::int64_t* ids, const float* rows, std::size_t n);
  void make_ram_room(const Batch& batch, std::vector<RamRow> superseded, std::size_t n);
  Spilled choose_spilled(const Batch& batch, const std::int64_t* ids, std::size_t n);
  void spill(Spilled& spilled, const std::int64_t* ids, const float* rows);
  void load_rows_tiered(const std::int64_t* ids, const std::byte* const* rows, std::size_t n,
                        const std::uint32_t* times);
  void write_chunk(const Batch& batch, Spilled& spilled, const std::int64_t* ids, const float* rows, std::size_t n);

  // table_delta.cc
  const Applied& applied(std::int64_t sequence) const;
  EpochError unknown_epoch(std::uint64_t epoch) const;
  std::uint32_t oldest_shown() const noexcept;
  void undo_back() noexcept;
  bool undone_in_force() const noexcept;
  void drop_unneeded_undos() noexcept;
  void wait_for_readers() noexcept;

  // table_memory.cc
  void retire_state(RowState state);
  void release_state(RowState state) noexcept;
  void make_room(std::uint64_t ids);
  void rebuild(std::uint64_t ids);
  void enforce_directory();
  void reclaim();
  void settle();
  void reclaim_rows();
  void reclaim_quiet();
  bool advance_turn() noexcept;
  void show_rows();
  bool keeps_times() const noexcept { return ttl_s_ > 0.0; }
  std::uint32_t set_time(std::uint32_t version, std::uint32_t time_s);
  void set_base_times(std::uint32_t base_time_s);
  double written_s(std::uint32_t version) const noexcept;
  std::uint64_t bytes_index() const noexcept;
  std::uint64_t bytes_undo() const noexcept;
  void note_peak();

  const std::uint32_t dim_;
  const Stored stored_;
  const bool huge_pages_;
  const std::uint64_t rows_hint_;
  const std::int64_t base_sequence_;
  const double ttl_s_;
  const std::uint64_t admit_after_;
  const double apply_rows_per_s_;
  const Kernels& kernels_;
  const std::shared_ptr<Memory> memory_;
  Region state_region_;  // TableState, then the default row
  TableState& state_;
  RowStore rows_;
  const std::unique_ptr<ColdTier> tier_;
  TableReader reader_;
  std::atomic<std::uint64_t> visible_rows_{0};

  mutable std::mutex writer_;
  std::unique_ptr<IdIndex> index_;
  Region directory_;
  Region times_;
  Region superseded_times_;          // in force until the next directory is
  bool base_closed_ = false;         // deltas have been applied or epochs published
  std::uint64_t newest_epoch_ = 0;   // that ever was
  std::uint32_t versions_ = 0;       // of which times_ tells the time
  std::uint64_t live_ = 0;
  std::uint64_t pending_ = 0;
  std::uint64_t bytes_peak_ = 0;
  std::int64_t turn_began_ns_ = 0;
  std::vector<Applied> applied_;
  std::vector<Epoch> epochs_;
  std::deque<Undo> undos_;
  std::deque<RetiredRow> retired_rows_;
  std::deque<Retired> retired_;
};

// Throws BagError unless offsets begin at 0, never fall, and end at n.
void check_bags(const std::int32_t* offsets /*[bags + 1]*/, std::size_t bags, std::size_t n);

}  // namespace paramserver
