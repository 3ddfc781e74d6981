// Which rows deserve RAM: how often ids were asked for lately, in and out of RAM, on one scale.
//
// Out of RAM, ids are counted in a sketch; in RAM, each row has a counter of its own. Both are halved together every
// so many accesses, so that what was popular yesterday does not stay for good. A row read from the cold tier takes the
// place of a row in RAM only if it was asked for more often (TinyLFU: Einziger, Friedman, Manes, 2017), and the row
// that goes is the least asked for of the next few under a clock's hand. One scan of rare ids therefore evicts nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "paramserver/csrc/memory.h"
#include "paramserver/csrc/row_state.h"

namespace paramserver {

// A count-min sketch of 8-bit counters (Cormode, Muthukrishnan, 2005), all four of an id in one cache line:
//
//   line (64 bytes) | 16 counters | 16 counters | 16 counters | 16 counters |   an id has one in each quarter
//
// It never counts too little, but for the halving, and too much only where four others collide.
// Thread-safety: one thread at a time.
class FrequencySketch {
 public:
  static constexpr unsigned kCountMax = 255;
  static constexpr std::size_t kBytesPerId = 4;

  // Room for about `ids` ids that are told apart. Four times the rows in RAM keep a scan from blurring it.
  explicit FrequencySketch(std::uint64_t ids);

  void add(std::int64_t id) noexcept;
  // Raises an id's count to at least `count`.
  void raise(std::int64_t id, unsigned count) noexcept;
  unsigned count(std::int64_t id) const noexcept;
  void halve() noexcept;
  std::size_t bytes() const noexcept { return region_.bytes(); }

 private:
  struct Line {
    std::uint8_t counts[64];
  };
  // The four counters of an id.
  struct Four {
    std::uint8_t* at[4];
  };
  Four find(std::int64_t id) const noexcept;

  std::uint64_t lines_;
  Region region_;
};

// The rows in RAM under the hand of a clock. Row numbers are below `rows_max`; others are not kept track of.
// Thread-safety: touch() from any thread; the rest by one writer.
class RowClock {
 public:
  explicit RowClock(std::uint64_t rows_max);

  // An id was answered from this row. Counts of readers that do it at once may be lost: they are statistics.
  void touch(RowNumber row) noexcept {
    if (row >= rows_max_) return;
    const std::uint8_t count = counts_[row].load(std::memory_order_relaxed);
    if (count < FrequencySketch::kCountMax) counts_[row].store(count + 1, std::memory_order_relaxed);
  }

  void place(RowNumber row, std::int64_t id, RowState home, unsigned count) noexcept;
  void remove(RowNumber row) noexcept;
  // Takes a row from under the hand, or puts it back; what is known of it stays.
  void untrack(RowNumber row) noexcept;
  void track(RowNumber row) noexcept;
  void forget_home(RowNumber row) noexcept { rows_[row].home = {}; }
  // The least asked for of the next occupied rows under the hand, which goes on; rows_max() when no row is occupied.
  RowNumber victim() noexcept;
  void halve() noexcept;

  bool occupied(RowNumber row) const noexcept { return row < rows_max_ && rows_[row].occupied; }
  std::int64_t id(RowNumber row) const noexcept { return rows_[row].id; }
  // Where the row lies in a file as well, a special state when nowhere.
  RowState home(RowNumber row) const noexcept { return rows_[row].home; }
  unsigned count(RowNumber row) const noexcept { return counts_[row].load(std::memory_order_relaxed); }
  std::uint64_t rows() const noexcept { return occupied_; }
  std::uint64_t rows_max() const noexcept { return rows_max_; }

  // What the clock keeps for each row beside it.
  static constexpr std::size_t kBytesPerRow = 3 * 8 + 1;

 private:
  struct Row {
    std::int64_t id = 0;
    RowState home;
    bool occupied = false;
  };

  const std::uint64_t rows_max_;
  std::unique_ptr<std::atomic<std::uint8_t>[]> counts_;
  std::vector<Row> rows_;
  std::uint64_t occupied_ = 0;
  RowNumber hand_ = 0;
};

}  // namespace paramserver
