// Checking offsets that a request brought, before anything indexes with them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace feature_store {

enum class OffsetsProblem : std::uint8_t { kNone = 0, kStart = 1, kDecrease = 2, kLong = 3 };

struct OffsetsVerdict {
  OffsetsProblem problem;
  std::size_t place;  // of the wrong offset, or the row that is too long
  std::int64_t value; // the wrong offset, the row's length, or (no problem) the last offset
};

// Offsets must start at 0, never decrease, and cut rows of at most length_max values (negative: of any length).
// `offsets` may be unaligned; count is at least 1.
OffsetsVerdict check_offsets(const void* offsets /*int32 [count]*/, std::size_t count,
                             std::int64_t length_max) noexcept;

}  // namespace feature_store
