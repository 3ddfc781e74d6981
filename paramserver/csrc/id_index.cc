#include "paramserver/csrc/id_index.h"

#include <algorithm>

namespace paramserver {

IdIndex::IdIndex(std::uint64_t rows, bool huge_pages)
    : lines_(std::max<std::uint64_t>(16, rows * 5 / (2 * kLineSlots) + 1)),
      region_(lines_ * kLineSlots * sizeof(Slot), huge_pages) {}

IdIndex::Slot& IdIndex::place(std::int64_t id) noexcept {
  Slot* slot = slots() + kLineSlots * home_line(id, lines_);
  for (;;) {
    if (slot->state.load(std::memory_order_relaxed) == kEmpty || slot->id.load(std::memory_order_relaxed) == id) {
      return *slot;
    }
    if (++slot == end()) slot = slots();
  }
}

void IdIndex::insert_live(const IdIndex& other) noexcept {
  for (const Slot* slot = other.begin(); slot != other.end(); ++slot) {
    const std::uint64_t state = slot->state.load(std::memory_order_relaxed);
    if (state < kFirstRow) continue;
    const std::int64_t id = slot->id.load(std::memory_order_relaxed);
    insert(place(id), id, state - kFirstRow);
  }
}

}  // namespace paramserver
