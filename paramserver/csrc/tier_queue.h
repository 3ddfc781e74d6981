// Rows that lookups read from the cold tier, on their way to whoever decides which of them belong in RAM.
//
// A bounded queue of cells that any number of threads fill and one empties, without a lock (Vyukov's bounded queue):
// a cell's turn says whether it may be written (turn == place) or read (turn == place + 1).
// When it is full, what comes is dropped: a row that is popular comes again.
// Thread-safety: push from any thread; pop by one at a time.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "paramserver/csrc/memory.h"
#include "paramserver/csrc/row_state.h"

namespace paramserver {

struct Proposal {
  std::int64_t id = 0;
  RowState state;  // under which the row was read
};

class ProposalQueue {
 public:
  ProposalQueue(std::size_t proposals_min, std::size_t row_bytes)
      : mask_(std::bit_ceil(proposals_min) - 1),
        row_bytes_(row_bytes),
        cells_(std::make_unique<Cell[]>(mask_ + 1)),
        rows_((mask_ + 1) * row_bytes, false) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  // False when it is full.
  bool push(const Proposal& proposal, const std::byte* row) noexcept {
    std::size_t place = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[place & mask_];
      const std::size_t turn = cell.turn.load(std::memory_order_acquire);
      if (turn == place) {
        if (!tail_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) continue;
        cell.proposal = proposal;
        std::memcpy(rows_.data() + (place & mask_) * row_bytes_, row, row_bytes_);
        cell.turn.store(place + 1, std::memory_order_release);
        return true;
      }
      if (turn < place) return false;
      place = tail_.load(std::memory_order_relaxed);
    }
  }

  // False when it is empty. `row`: [row_bytes].
  bool pop(Proposal& proposal, std::byte* row) noexcept {
    Cell& cell = cells_[head_ & mask_];
    if (cell.turn.load(std::memory_order_acquire) != head_ + 1) return false;
    proposal = cell.proposal;
    std::memcpy(row, rows_.data() + (head_ & mask_) * row_bytes_, row_bytes_);
    cell.turn.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

  std::size_t size_max() const noexcept { return mask_ + 1; }

 private:
  struct Cell {
    std::atomic<std::size_t> turn;
    Proposal proposal;
  };

  const std::size_t mask_;
  const std::size_t row_bytes_;
  std::unique_ptr<Cell[]> cells_;
  Region rows_;
  alignas(64) std::atomic<std::size_t> tail_{0};
  alignas(64) std::size_t head_ = 0;
};

}  // namespace paramserver
