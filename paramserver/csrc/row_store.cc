#include "paramserver/csrc/row_store.h"

#include <algorithm>

namespace paramserver {
namespace {

constexpr std::size_t kPrefetchBytesMax = 512;

int shift_of(std::uint64_t rows_hint, std::size_t row_bytes) {
  const std::uint64_t one_huge_page = std::max<std::uint64_t>(16, kHugePageBytes / row_bytes);
  return std::bit_width(std::max(rows_hint, one_huge_page) - 1);
}

}  // namespace

RowStore::RowStore(std::size_t row_bytes, std::uint64_t rows_hint, bool huge_pages)
    : row_bytes_(row_bytes),
      prefetch_bytes_(std::min(row_bytes, kPrefetchBytesMax)),
      tail_(row_bytes % 64 != 0),
      first_shift_(shift_of(rows_hint, row_bytes)),
      first_rows_(RowNumber{1} << first_shift_),
      huge_pages_(huge_pages) {
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

void RowStore::add_segment() {
  const std::size_t k = regions_.size();
  const RowNumber rows = k == 0 ? first_rows_ : first_rows_ << (k - 1);
  regions_.emplace_back(rows * row_bytes_, huge_pages_);
  segments_[k].store(regions_.back().data(), std::memory_order_release);
  if (k == 0) first_ = regions_.back().data();
  end_ += rows;
}

}  // namespace paramserver
