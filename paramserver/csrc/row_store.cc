#include "paramserver/csrc/row_store.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

std::uint32_t shift_of(std::uint64_t rows_hint, std::size_t row_bytes) {
  const std::uint64_t one_huge_page = std::max<std::uint64_t>(16, kHugePageBytes / row_bytes);
  return static_cast<std::uint32_t>(std::bit_width(std::max(rows_hint, one_huge_page) - 1));
}

}  // namespace

RowStore::RowStore(TableState& state, std::uint64_t rows_hint, bool huge_pages, std::shared_ptr<Memory> memory)
    : state_(state), huge_pages_(huge_pages), memory_(std::move(memory)) {
  state_.first_shift = shift_of(rows_hint, state.row_bytes);
  add_segment();
}

RowNumber RowStore::allocate() {
  if (!free_.empty()) {
    const RowNumber row = free_.back();
    free_.pop_back();
    return row;
  }
  if (next_ == end_) add_segment();
  return next_++;
}

void RowStore::release(RowNumber row) {
  // Doubled as vectors are, but never beyond the rows there are: a tier's budget counts one entry for each.
  if (free_.size() == free_.capacity()) {
    free_.reserve(std::min<RowNumber>(next_, std::max<RowNumber>(16, 2 * free_.capacity())));
  }
  free_.push_back(row);
}

void RowStore::add_segment() {
  const std::size_t k = regions_.size();
  const RowNumber first = RowNumber{1} << state_.first_shift;
  const RowNumber rows = k == 0 ? first : first << (k - 1);
  if (end_ + rows > kValueMax + 1) {
    throw MemoryExhausted("a table holds at most " + std::to_string(kValueMax + 1) +
                          " rows: lower rows_hint, or spread it over shards");
  }
  regions_.emplace_back(rows * state_.row_bytes, huge_pages_, memory_);
  state_.segments[k].store(regions_.back().offset(), std::memory_order_release);
  end_ += rows;
}

}  // namespace paramserver
