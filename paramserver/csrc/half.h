// IEEE binary16 and bfloat16 in plain integer arithmetic: the path of CPUs without F16C, and the tail of every vector
// loop. Rounds to nearest even and quietens NaN exactly as the instructions do, so that all paths agree bit for bit.
#pragma once

#include <bit>
#include <cstdint>

namespace paramserver {

inline float f32_of_f16(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) {
    const std::uint32_t quiet = magnitude > 0x7c00u ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (magnitude & 0x03ffu) << 13);
  }
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  // A subnormal half is magnitude * 2^-24, which float32 holds exactly.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

inline std::uint16_t f16_of_f32(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x03ffu));
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude >= 0x38800000u) {
    const std::uint32_t rounded = magnitude + 0x0fffu + (magnitude >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13);
  }
  // Adding 0.5 puts the lowest half bit (2^-24) at the lowest float bit: the FPU rounds to nearest even for us.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
}

inline float f32_of_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t bf16_of_f32(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x0040u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace paramserver
