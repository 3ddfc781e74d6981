// The rows' memory: fixed-size rows addressed by number, in segments that never move, so that growing stops nobody.
//
//   segment 0: rows [0, first), segment k: rows [first * 2^(k-1), first * 2^k), first being a power of two
//   row r begins at its segment's start + (r - the segment's first row) * row_bytes
//
// Offsets are 64-bit: rows * dim may pass 2^31. Storage holds no pointers; readers go by RowsView (table_state.h).
// Thread-safety: one writer. Ownership: the segments are its own, their offsets lie in the TableState.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "paramserver/csrc/memory.h"
#include "paramserver/csrc/table_state.h"

namespace paramserver {

class RowStore {
 public:
  // The first segment holds at least `rows_hint` rows of state.row_bytes; sets state.first_shift and its segments.
  RowStore(TableState& state, std::uint64_t rows_hint, bool huge_pages, std::shared_ptr<Memory> memory);

  std::byte* at(RowNumber row) const noexcept {
    return const_cast<std::byte*>(RowsView(state_, memory_->base()).at(row));
  }

  // A row that nobody else holds. Throws MemoryExhausted.
  RowNumber allocate();
  // Gives back a row that no reader can hold.
  void release(RowNumber row);

  std::uint64_t in_use() const noexcept { return next_ - free_.size(); }
  std::uint64_t free() const noexcept { return free_.size(); }
  // Bytes taken from the system so far: rows as far as ever used, and the list of free ones.
  std::uint64_t bytes() const noexcept { return next_ * state_.row_bytes + free_.capacity() * sizeof(RowNumber); }
  bool huge() const noexcept { return regions_.front().huge(); }

 private:
  void add_segment();

  TableState& state_;
  const bool huge_pages_;
  const std::shared_ptr<Memory> memory_;
  RowNumber next_ = 0;
  RowNumber end_ = 0;
  std::vector<RowNumber> free_;
  std::vector<Region> regions_;
};

}  // namespace paramserver
