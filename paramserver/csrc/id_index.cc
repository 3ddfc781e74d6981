#include "paramserver/csrc/id_index.h"

#include <algorithm>
#include <utility>

namespace paramserver {
namespace {

constexpr std::uint64_t kLinesMin = 16;

// Lines that hold `rows` ids with 7 slots in 10 taken.
std::uint64_t lines_for(std::uint64_t rows) {
  return std::max<std::uint64_t>(kLinesMin, rows * 10 / (7 * IndexView::kLineSlots) + 1);
}

}  // namespace

IdIndex::IdIndex(std::uint64_t rows, bool huge_pages, std::shared_ptr<Memory> memory)
    : lines_(lines_for(rows)),
      region_(lines_ * IndexView::kLineSlots * sizeof(IndexSlot), huge_pages, std::move(memory)) {}

IndexSlot& IdIndex::place(std::int64_t id) noexcept {
  IndexSlot* const begin = slots();
  IndexSlot* const end = begin + capacity();
  IndexSlot* slot = begin + IndexView::kLineSlots * home_line(id, lines_);
  for (;;) {
    if (slot->state.load(std::memory_order_relaxed) == 0 || slot->id.load(std::memory_order_relaxed) == id) {
      return *slot;
    }
    if (++slot == end) slot = begin;
  }
}

}  // namespace paramserver
