#include "feature_store/csrc/offsets.h"

#include <cstring>

namespace feature_store {

OffsetsVerdict check_offsets(const void* offsets, std::size_t count, std::int64_t length_max) noexcept {
  const auto at = [offsets](std::size_t i) {
    std::int32_t value;
    std::memcpy(&value, static_cast<const char*>(offsets) + i * sizeof value, sizeof value);
    return value;
  };
  std::int64_t last = at(0);
  if (last != 0) return {OffsetsProblem::kStart, 0, last};
  for (std::size_t i = 1; i < count; ++i) {
    const std::int64_t next = at(i);
    if (next < last) return {OffsetsProblem::kDecrease, i, next};
    if (length_max >= 0 && next - last > length_max) return {OffsetsProblem::kLong, i - 1, next - last};
    last = next;
  }
  return {OffsetsProblem::kNone, 0, last};
}

}  // namespace feature_store
