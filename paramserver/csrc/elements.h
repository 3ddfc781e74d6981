// One element of a stored or returned row, by type: what the scalar kernels and every vector tail are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "paramserver/csrc/half.h"
#include "paramserver/csrc/kernels.h"

namespace paramserver {

template <Stored kStored>
inline float load_element(const std::byte* row, std::size_t i) noexcept {
  if constexpr (kStored == Stored::kF32) {
    float value;
    std::memcpy(&value, row + 4 * i, sizeof value);
    return value;
  } else {
    std::uint16_t half;
    std::memcpy(&half, row + 2 * i, sizeof half);
    return f32_of_f16(half);
  }
}

template <RowType kType>
inline void store_element(std::byte* row, std::size_t i, float value) noexcept {
  if constexpr (kType == RowType::kF32) {
    std::memcpy(row + 4 * i, &value, sizeof value);
  } else {
    const std::uint16_t bits = kType == RowType::kF16 ? f16_of_f32(value) : bf16_of_f32(value);
    std::memcpy(row + 2 * i, &bits, sizeof bits);
  }
}

// The stored bytes are what the caller gets: no conversion.
template <Stored kStored, RowType kType>
inline constexpr bool kSameBytes =
    (kStored == Stored::kF32 && kType == RowType::kF32) || (kStored == Stored::kF16 && kType == RowType::kF16);

}  // namespace paramserver
