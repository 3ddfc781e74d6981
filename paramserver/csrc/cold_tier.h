// What a Table asks of the tier below it: to read rows that are not in RAM, and to keep RAM within its budget.
//
// A table without a tier never comes here. With one, a lookup takes three steps over up to kColdVisitIds ids: find the
// state of every id; hand the cold ones (kinds base and spill) to read() in one batch; copy or pool all rows in the
// order of the ids. Rows in RAM that it met go to touched() in one call.
//
// Thread-safety: the reader's side from any thread, several at once, beside the writer's side. The writer's side is
// called with the table's writer lock held, so it never runs twice at once; it moves rows with Table::move_out and
// Table::move_in, which want that lock held, while the tier's own threads use Table::demote and Table::promote, which
// take it.
// Ownership: the table owns its tier and outlives its threads: stop() is called before anything else goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "paramserver/csrc/row_source.h"
#include "paramserver/csrc/row_state.h"

namespace paramserver {

class Table;

// Ids of one batch of a lookup on a tiered table.
inline constexpr std::size_t kColdVisitIds = 16384;

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
  // `rows` rows are about to be written: keeps RAM within its budget by moving others out.
  virtual void make_room(Table& table, std::uint64_t rows) = 0;
  // A row number now holds the row of `id`, whose state is `state`; `from` is where it was before (kind base or spill
  // for a promotion, else special).
  virtual void placed(RowNumber row, std::int64_t id, RowState state, RowState from) noexcept = 0;
  // No reader holds this row number, or this spill slot, any more.
  virtual void released(RowNumber row) noexcept = 0;
  virtual void released_slot(std::uint64_t spill_slot) noexcept = 0;

  // Ends the tier's threads; no call into the table comes after it.
  virtual void stop() noexcept = 0;
};

}  // namespace paramserver
