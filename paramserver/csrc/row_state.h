// What the index says of one id, in one word, so that a single store publishes a new row, a deletion or a move.
//
//   bit 63        40 39   38 37                        0
//      | version:24 | kind:2 |          value:38          |
//
//   kind 0, special: value 0 in a word of 0 is an empty slot; value 1 an absent id; value k + 1 an id that k deltas
//                    have contained and that is not admitted yet
//   kind 1, RAM:     value is a row number of the RowStore
//   kind 2, base:    value is a slot number of the base slot file (the immutable snapshot)
//   kind 3, spill:   value is a slot number of the spill file (scratch)
//
// Versions say which delta wrote the word: kBaseVersion for the base state, kBaseVersion + k for the k-th sequence
// after it, and the versions below kBaseVersion for base rows of a table with a time to live, by age, the oldest first.
// So both "not yet visible at this epoch" and "expired" are one comparison of the version with the ends of a range.
// Thread-safety: plain values.
#pragma once

#include <cstdint>

namespace paramserver {

using RowNumber = std::uint64_t;

enum class RowKind : std::uint8_t { kSpecial = 0, kRam = 1, kBase = 2, kSpill = 3 };

inline constexpr int kValueBits = 38;
inline constexpr int kVersionShift = 40;
inline constexpr std::uint64_t kValueMax = (std::uint64_t{1} << kValueBits) - 1;
inline constexpr std::uint32_t kVersionMax = (1u << 24) - 1;
inline constexpr std::uint32_t kBaseVersion = 63;

struct RowState {
  std::uint64_t word = 0;

  static constexpr RowState of(RowKind kind, std::uint64_t value, std::uint32_t version) noexcept {
    return {std::uint64_t{version} << kVersionShift | static_cast<std::uint64_t>(kind) << kValueBits | value};
  }
  static constexpr RowState absent(std::uint32_t version) noexcept { return of(RowKind::kSpecial, 1, version); }
  static constexpr RowState pending(std::uint64_t deltas, std::uint32_t version) noexcept {
    return of(RowKind::kSpecial, deltas + 1, version);
  }

  constexpr std::uint32_t version() const noexcept { return static_cast<std::uint32_t>(word >> kVersionShift); }
  constexpr RowKind kind() const noexcept { return static_cast<RowKind>(word >> kValueBits & 3); }
  constexpr std::uint64_t value() const noexcept { return word & kValueMax; }
  constexpr bool empty() const noexcept { return word == 0; }
  // The id has a row, wherever it lies.
  constexpr bool live() const noexcept { return kind() != RowKind::kSpecial; }
  // How many deltas have contained an id that is not admitted yet, 0 for every other state.
  constexpr std::uint64_t deltas() const noexcept { return !live() && value() > 1 ? value() - 1 : 0; }
  constexpr bool operator==(const RowState&) const noexcept = default;
};

}  // namespace paramserver
