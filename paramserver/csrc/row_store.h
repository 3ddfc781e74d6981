// The rows' memory: fixed-size rows addressed by number, in segments that never move, so that growing stops nobody.
//
//   segment 0: rows [0, first), segment k: rows [first * 2^(k-1), first * 2^k), first being a power of two
//   row r begins at its segment's start + (r - the segment's first row) * row_bytes
//
// Offsets are 64-bit: rows * dim may pass 2^31. Storage holds no pointers.
// Thread-safety: at() and prefetch() from any thread for a row number that was published to it; the rest by one writer.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "paramserver/csrc/id_index.h"
#include "paramserver/csrc/memory.h"

namespace paramserver {

class RowStore {
 public:
  // The first segment holds at least `rows_hint` rows.
  RowStore(std::size_t row_bytes, std::uint64_t rows_hint, bool huge_pages);

  std::byte* at(RowNumber row) const noexcept {
    if (row < first_rows_) [[likely]] return first_ + row * row_bytes_;
    const int k = std::bit_width(row >> first_shift_);
    const RowNumber start = first_rows_ << (k - 1);
    return segments_[static_cast<std::size_t>(k)].load(std::memory_order_relaxed) + (row - start) * row_bytes_;
  }

  void prefetch(const std::byte* row) const noexcept {
    for (std::size_t byte = 0; byte < prefetch_bytes_; byte += 64) __builtin_prefetch(row + byte);
    if (tail_) __builtin_prefetch(row + row_bytes_ - 1);
  }

  // A row that nobody else holds. Throws MemoryExhausted.
  RowNumber allocate();
  // Gives back a row that no reader can hold.
  void release(RowNumber row) { free_.push_back(row); }

  std::size_t row_bytes() const noexcept { return row_bytes_; }
  // Bytes taken from the system for rows so far.
  std::size_t bytes_touched() const noexcept { return next_ * row_bytes_; }
  bool huge() const noexcept { return regions_.front().huge(); }

 private:
  void add_segment();

  const std::size_t row_bytes_;
  // Long rows are left to the hardware prefetcher past this: more would push other rows out of L1.
  const std::size_t prefetch_bytes_;
  // Rows that are no multiple of a cache line may end in one that the loop above has not named.
  const bool tail_;
  const int first_shift_;
  const RowNumber first_rows_;
  const bool huge_pages_;
  std::byte* first_ = nullptr;
  RowNumber next_ = 0;
  RowNumber end_ = 0;
  std::vector<RowNumber> free_;
  std::vector<Region> regions_;
  std::array<std::atomic<std::byte*>, 64> segments_{};
};

}  // namespace paramserver
