// Where an id's row is: open addressing with linear probing over 16-byte slots, four to a cache line.
//
//   byte  0        8        16       32       48       64
//        | id     | state  | slot 1 | slot 2 | slot 3 |  one line, 64-byte aligned
//
//   state 0: empty. 1: deleted (the id stays). r + 2: the id's row is number r.
//
// Occupancy lives in the state, so every 64-bit id is legal. Probing starts at the first slot of the id's home line and
// goes slot by slot, over the end to the start: an id is looked for in its line without a branch on each slot, and the
// next line is touched only when the last slot of this one is taken (1 id in 40 at the load of a fresh index).
//
// A slot's id is written once, before its state is published, and never changes: a reader that saw a state may trust
// the id beside it without looking again. Deleted slots are emptied by building a new index.
// Storage is position-independent. Thread-safety: find and prefetch beside one writer; everything else by the writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/hash.h"
#include "paramserver/csrc/memory.h"

namespace paramserver {

using RowNumber = std::uint64_t;

class IdIndex {
 public:
  struct Slot {
    std::atomic<std::int64_t> id;
    std::atomic<std::uint64_t> state;
  };
  static_assert(sizeof(Slot) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

  static constexpr std::size_t kLineSlots = 4;
  static constexpr std::uint64_t kEmpty = 0;
  static constexpr std::uint64_t kDeleted = 1;
  static constexpr std::uint64_t kFirstRow = 2;

  // Room for `rows` ids with two slots in five taken.
  IdIndex(std::uint64_t rows, bool huge_pages);

  const Slot* home(std::int64_t id) const noexcept { return slots() + kLineSlots * home_line(id, lines_); }

  // The state of `id` (kEmpty when it was never here), starting at its home line. Empty slots hold id 0, so a match
  // counts only with the state, and the id is read again after it: the slot may have been filled in between.
  std::uint64_t find(const Slot* home, std::int64_t id) const noexcept {
    for (const Slot* line = home;;) {
      const auto same = [&](std::size_t k) -> unsigned { return line[k].id.load(std::memory_order_relaxed) == id; };
      const Slot& slot = line[__builtin_ctz(same(0) | same(1) << 1 | same(2) << 2 | 8u)];
      const std::uint64_t state = slot.state.load(std::memory_order_seq_cst);
      if (slot.id.load(std::memory_order_relaxed) == id && state != kEmpty) [[likely]] return state;
      if (line[kLineSlots - 1].state.load(std::memory_order_acquire) == kEmpty) return kEmpty;
      line += kLineSlots;
      if (line == end()) line = slots();
    }
  }

  // The slot that holds `id`, or the empty one where it belongs. The index must not be full.
  Slot& place(std::int64_t id) noexcept;

  // Writes an id and its row into an empty slot from place().
  void insert(Slot& slot, std::int64_t id, RowNumber row) noexcept {
    slot.id.store(id, std::memory_order_relaxed);
    slot.state.store(row + kFirstRow, std::memory_order_release);
    ++taken_;
  }

  // Copies the live ids of `other`, which no writer may be changing.
  void insert_live(const IdIndex& other) noexcept;

  std::uint64_t taken() const noexcept { return taken_; }  // live and deleted
  std::uint64_t capacity() const noexcept { return lines_ * kLineSlots; }
  // Beyond this many taken slots probes grow long: build a larger index.
  std::uint64_t taken_max() const noexcept { return capacity() / 8 * 5; }
  const Slot* begin() const noexcept { return slots(); }
  const Slot* end() const noexcept { return slots() + capacity(); }
  const Region& region() const noexcept { return region_; }

 private:
  Slot* slots() const noexcept { return reinterpret_cast<Slot*>(region_.data()); }

  std::uint64_t lines_;
  Region region_;
  std::uint64_t taken_ = 0;
};

}  // namespace paramserver
