// The loops over values: one operation, many values. Every instruction set gives the same bytes, because each value
// goes through the same IEEE operations in the same order (no fused multiply-add, no library math).
//
// Thread-safety: pure functions. Pointers are aligned to their type unless said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "feature_store/csrc/isa.h"

namespace feature_store {

struct Kernels {
  // x < lo becomes lo, x > hi becomes hi, NaN stays as it is.
  void (*clip)(float* values /*[n]*/, std::size_t n, float lo, float hi) noexcept;
  // ln(1 + x) rounded once from float64; NaN and x < -1 become the quiet NaN 0x7fc00000.
  void (*log1p)(float* values /*[n]*/, std::size_t n) noexcept;
  // How many of the ascending boundaries are <= x; all of them for NaN.
  void (*bucketize)(const float* values /*[n]*/, std::size_t n, const float* boundaries /*[m]*/, std::size_t m,
                    std::int64_t* out /*[n], not overlapping values*/) noexcept;
  // out[i] = source[rows[i]].
  void (*gather32)(const std::uint32_t* source, const std::uint32_t* rows /*[n]*/, std::size_t n,
                   std::uint32_t* out /*[n]*/) noexcept;
  void (*gather64)(const std::uint64_t* source, const std::uint32_t* rows /*[n]*/, std::size_t n,
                   std::uint64_t* out /*[n]*/) noexcept;
};

const Kernels& kernels(Isa isa) noexcept;

}  // namespace feature_store
