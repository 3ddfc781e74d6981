// What a Table asks of the tier below it: to read rows that are not in RAM, and to keep RAM within its budget.
//
// A table without a tier never comes here. With one, a lookup takes three steps over up to cold_visit_ids() ids: find
// every id's state; hand the cold ones (kinds base and spill) to read() in one batch; copy or pool all rows in the
// order of the ids. Rows in RAM that it met go to touched() in one call.
//
// Thread-safety: the reader's side from any thread, several at once, beside the writer's side. The writer's side is
// called with the table's writer lock held, so it never runs twice at once; it moves rows with Table::move_out and
// Table::move_in. The tier's own thread goes through Table::maintain, which takes that lock.
// Ownership: the table owns its tier and outlives its threads: stop() is called before anything else goes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "paramserver/csrc/row_source.h"
#include "paramserver/csrc/row_state.h"
#include "paramserver/csrc/tier_stats.h"

namespace paramserver {

class IdIndex;
class Table;

// Ids of one batch of a lookup on a tiered table: many, so that slots of one page are one read, but not more than 16
// MiB of rows.
constexpr std::size_t cold_visit_ids(std::size_t row_bytes) noexcept {
  return std::clamp<std::size_t>((std::size_t{16} << 20) / row_bytes, 1024, std::size_t{1} << 17);
}

// One cold row of a lookup.
struct ColdRead {
  std::int64_t id = 0;
  RowState state;                                // kind base or spill
  const std::byte* row = nullptr;                // set by read(): the stored row, or null when it was not read
  RowStatus status = RowStatus::kUnavailable;    // set by read(): kCold, kDeadline or kUnavailable
};

// A lookup's own memory for cold rows, used again from batch to batch of one call.
struct ColdScratch {
  std::vector<const std::byte*> rows;  // the table's: the row of each id of a batch
  std::vector<RowNumber> touched;      // the table's: rows in RAM that a batch has met
  std::vector<ColdRead> reads;         // the table's: the cold rows of a batch
  std::vector<std::uint32_t> places;   // the table's: which ids of the batch they belong to
  std::vector<std::byte> bytes;        // the tier's, and all below
  std::size_t reads_left = 0;  // set by begin(); read() takes from it and answers kDeadline once it is 0
  void* tier = nullptr;        // whatever the tier keeps between two batches of one call
};

// A row in RAM, and which index its state lies in.
struct RamRow {
  RowNumber row = 0;
  std::int64_t id = 0;
  IdIndex* undo = nullptr;  // a delta's undo index, when only epochs before it read the row; null: the main index
};

class ColdTier {
 public:
  virtual ~ColdTier() = default;

  // --- The reader's side -------------------------------------------------------------------------------------------
  // Once before the first batch of a call and once after its last.
  virtual void begin(ColdScratch& scratch) const noexcept = 0;
  virtual void end(ColdScratch& scratch) const noexcept = 0;
  // Reads all rows, which stay in `scratch` until the next call with it; obeys deadline and cancel flag of `context`,
  // and may propose what it read for promotion. The slots of all states stay valid until it returns.
  virtual void read(const LookupContext& context, ColdRead* reads /*[n]*/, std::size_t n,
                    ColdScratch& scratch) const noexcept = 0;
  // Rows in RAM that a batch has met, in any order, repeated ones included.
  virtual void touched(const RowNumber* rows /*[n]*/, std::size_t n) const noexcept = 0;

  // --- The writer's side, under the table's writer lock --------------------------------------------------------------
  // Rows that RAM has room for under the budget.
  virtual std::uint64_t rows_ram_max() const noexcept = 0;
  // `rows` rows are about to be written to RAM: moves others out as far as it can.
  virtual void make_room(Table& table, std::uint64_t rows) = 0;
  // As many rows are about to take the place of these, which only older epochs read then: moves them out as far as it
  // can. No row twice.
  virtual void make_way(Table& table, const std::vector<RamRow>& rows) = 0;
  // Writes rows to spill slots. All or nothing; throws SlotFileFull, SlotFileError.
  virtual void spill(const std::int64_t* ids /*[n]*/, const std::byte* const* rows /*[n]*/, std::size_t n,
                     std::uint64_t* slots /*[n]*/) = 0;
  // A row number now holds the newest row of `id`, which lies nowhere else.
  virtual void placed(RowNumber row, std::int64_t id) noexcept = 0;
  // A row number no longer holds its id's newest row, but an older epoch may want it; or it does so again.
  virtual void shelved(RowNumber row) noexcept = 0;
  virtual void restored(RowNumber row) noexcept = 0;
  // No reader holds this row number, or this spill slot, any more.
  virtual void released(RowNumber row) noexcept = 0;
  virtual void released_slot(std::uint64_t spill_slot) noexcept = 0;
  // Takes up a batch of what lookups proposed; true when more may be waiting.
  virtual bool maintain(Table& table) = 0;

  virtual TierStats stats() const noexcept = 0;

  // Begins the tier's thread, once the table is ready for it.
  virtual void start(Table& table) = 0;
  // Ends the tier's threads; no call into the table comes after it.
  virtual void stop() noexcept = 0;
};

}  // namespace paramserver
