// One element of a stored or returned row, by type: what the scalar kernels and every vector tail are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "paramserver/csrc/half.h"
#include "paramserver/csrc/kernels.h"

namespace paramserver {

inline float f32_at(const std::byte* at) noexcept {
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// A stored row and what its elements share. Its bytes need no alignment.
template <Stored kStored>
struct StoredRow {
  StoredRow(const std::byte* row, std::size_t /*dim*/) noexcept : bytes(row) {}

  float operator[](std::size_t j) const noexcept {
    if constexpr (kStored == Stored::kF32) {
      return f32_at(bytes + 4 * j);
    } else {
      std::uint16_t half;
      std::memcpy(&half, bytes + 2 * j, sizeof half);
      return kStored == Stored::kF16 ? f32_of_f16(half) : f32_of_bf16(half);
    }
  }

  const std::byte* bytes;
};

template <>
struct StoredRow<Stored::kInt8> {
  StoredRow(const std::byte* row, std::size_t dim) noexcept
      : bytes(row), scale(f32_at(row + int8_scale_at(dim))), bias(f32_at(row + int8_scale_at(dim) + 4)) {}

  float operator[](std::size_t j) const noexcept {
    return static_cast<float>(static_cast<std::uint8_t>(bytes[j])) * scale + bias;
  }

  const std::byte* bytes;
  float scale;
  float bias;
};

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
inline constexpr bool kSameBytes = static_cast<int>(kStored) == static_cast<int>(kType);

}  // namespace paramserver
