// Where an id's row is: open addressing with linear probing over 16-byte slots, four to a cache line.
//
//   byte  0        8        16       32       48       64
//        | id     | state  | slot 1 | slot 2 | slot 3 |  one line, 64-byte aligned
//
// A slot whose state is 0 is empty: occupancy lives in the state (row_state.h), so every 64-bit id is legal. Probing
// starts at the first slot of the id's home line and goes slot by slot, over the end to the start: an id is looked for
// in its line without a branch on each slot, and the next line is touched only when the last slot of this one is taken.
// An index begins with 7 slots in 10 taken and is full with 17 in 20: 19 to 24 bytes an id.
//
// A slot's id is written once, before its state is published, and never changes: a reader that saw a state may trust
// the id beside it without looking again. Slots of absent ids are emptied by building a new index.
// Storage is position-independent. Thread-safety: IndexView beside one writer; everything else by the writer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "paramserver/csrc/hash.h"
#include "paramserver/csrc/memory.h"
#include "paramserver/csrc/row_state.h"

namespace paramserver {

struct IndexSlot {
  std::atomic<std::int64_t> id;
  std::atomic<std::uint64_t> state;
};
static_assert(sizeof(IndexSlot) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

// What readers need of an index: where its slots lie here, and how many lines they are.
struct IndexView {
  static constexpr std::size_t kLineSlots = 4;

  const IndexSlot* slots = nullptr;
  std::uint64_t lines = 0;

  const IndexSlot* home(std::int64_t id) const noexcept { return slots + kLineSlots * home_line(id, lines); }
  const IndexSlot* begin() const noexcept { return slots; }
  const IndexSlot* end() const noexcept { return slots + lines * kLineSlots; }

  // Where to go on looking for `id`: its home line, or the next one when it is not in a full home line (one id in five
  // at the load of a fresh index). Without a branch, so that the next line is on its way before anyone waits for it.
  const IndexSlot* likely_line(const IndexSlot* home, std::int64_t id) const noexcept {
    bool here = home[kLineSlots - 1].state.load(std::memory_order_relaxed) == 0;
    for (std::size_t k = 0; k < kLineSlots; ++k) here |= home[k].id.load(std::memory_order_relaxed) == id;
    const IndexSlot* next = home + kLineSlots;
    next = next == end() ? slots : next;
    return here ? home : next;
  }

  // The state of `id` (empty when it was never here), starting at its home line. Empty slots hold id 0, so a match
  // counts only with the state, and the id is read again after it: the slot may have been filled in between.
  RowState find(const IndexSlot* home, std::int64_t id) const noexcept {
    for (const IndexSlot* line = home;;) {
      const auto same = [&](std::size_t k) -> unsigned { return line[k].id.load(std::memory_order_relaxed) == id; };
      const IndexSlot& slot = line[__builtin_ctz(same(0) | same(1) << 1 | same(2) << 2 | 8u)];
      const RowState state{slot.state.load(std::memory_order_seq_cst)};
      if (slot.id.load(std::memory_order_relaxed) == id && !state.empty()) [[likely]] return state;
      if (line[kLineSlots - 1].state.load(std::memory_order_acquire) == 0) return {};
      line += kLineSlots;
      if (line == end()) line = slots;
      // An index is never full; memory that a mapped reader looks at too late may look so.
      if (line == home) [[unlikely]] return {};
    }
  }
  RowState find(std::int64_t id) const noexcept { return find(home(id), id); }
};

class IdIndex {
 public:
  // Room for `rows` ids at the load of a fresh index. Throws MemoryExhausted.
  IdIndex(std::uint64_t rows, bool huge_pages, std::shared_ptr<Memory> memory);

  IndexView view() const noexcept { return {slots(), lines_}; }

  // The slot that holds `id`, or the empty one where it belongs. The index must not be full.
  IndexSlot& place(std::int64_t id) noexcept;

  // Writes an id and its state into an empty slot from place().
  void insert(IndexSlot& slot, std::int64_t id, RowState state) noexcept {
    slot.id.store(id, std::memory_order_relaxed);
    slot.state.store(state.word, std::memory_order_seq_cst);
    ++taken_;
  }

  std::uint64_t taken() const noexcept { return taken_; }
  std::uint64_t capacity() const noexcept { return lines_ * IndexView::kLineSlots; }
  // Beyond this many taken slots probes grow long: build a larger index.
  std::uint64_t taken_max() const noexcept { return capacity() / 20 * 17; }
  // How many ids to make room for when an index of `taken` ids is full: a quarter more slots than it has.
  static constexpr std::uint64_t grown(std::uint64_t taken) noexcept { return taken + taken / 32; }
  const Region& region() const noexcept { return region_; }

 private:
  IndexSlot* slots() const noexcept { return reinterpret_cast<IndexSlot*>(region_.data()); }

  std::uint64_t lines_;
  Region region_;
  std::uint64_t taken_ = 0;
};

}  // namespace paramserver
