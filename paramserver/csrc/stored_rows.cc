#include "paramserver/csrc/stored_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "paramserver/csrc/hash.h"

namespace paramserver {
namespace {

// True when an element's exponent is all ones: NaN or infinity. `mask` is the exponent's bits.
template <class Bits>
bool any_unfit(const std::byte* row, std::size_t dim, Bits mask) noexcept {
  Bits bad = 0;
  for (std::size_t j = 0; j < dim; ++j) {
    Bits bits;
    std::memcpy(&bits, row + j * sizeof bits, sizeof bits);
    bad |= static_cast<Bits>((bits & mask) == mask);
  }
  return bad != 0;
}

bool int8_unfit(const std::byte* row, std::size_t dim) noexcept {
  float scale_bias[2];
  std::memcpy(scale_bias, row + int8_scale_at(dim), sizeof scale_bias);
  return !std::isfinite(scale_bias[0]) || !std::isfinite(255 * scale_bias[0] + scale_bias[1]);
}

bool unfit(Stored stored, const std::byte* row, std::size_t dim) noexcept {
  switch (stored) {
    case Stored::kF32: return any_unfit<std::uint32_t>(row, dim, 0x7f800000u);
    case Stored::kF16: return any_unfit<std::uint16_t>(row, dim, 0x7c00u);
    case Stored::kBF16: return any_unfit<std::uint16_t>(row, dim, 0x7f80u);
    case Stored::kInt8: return int8_unfit(row, dim);
  }
  return true;
}

}  // namespace

std::size_t first_unfit(Stored stored, std::uint32_t dim, const std::byte* rows, std::size_t n) noexcept {
  const std::size_t row_bytes = stored_row_bytes(stored, dim);
  for (std::size_t i = 0; i < n; ++i) {
    if (unfit(stored, rows + i * row_bytes, dim)) return i;
  }
  return n;
}

RowError row_error(Stored stored, std::uint32_t dim, const float* rows, const std::byte* encoded, std::size_t n) {
  RowError error;
  const std::size_t row_bytes = stored_row_bytes(stored, dim);
  std::vector<float> again(dim);
  for (std::size_t i = 0; i < n; ++i) {
    load_rows(kernels(), stored, encoded + i * row_bytes, 1, dim, again.data());
    // Sums of one row in float64, so that the order of batches hardly matters.
    for (std::size_t j = 0; j < dim; ++j) {
      const double value = rows[i * dim + j];
      const double distance = std::abs(value - static_cast<double>(again[j]));
      error.max = std::max(error.max, distance);
      error.sum += distance;
      error.squares += distance * distance;
      error.signal_squares += value * value;
    }
  }
  return error;
}

std::uint64_t rows_fingerprint(const std::int64_t* ids, const std::byte* rows, std::size_t row_bytes,
                               std::size_t n) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t hash = mix(ids[i]);
    const std::byte* row = rows + i * row_bytes;
    for (std::size_t at = 0; at < row_bytes; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, row + at, std::min<std::size_t>(8, row_bytes - at));
      hash = mix(static_cast<std::int64_t>((hash ^ word) + 0x9e3779b97f4a7c15ULL));
    }
    sum += hash;
  }
  return sum;
}

void sort_by_mix(std::int64_t* ids, std::size_t n) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> keyed(n);
  for (std::size_t i = 0; i < n; ++i) keyed[i] = {mix(ids[i]), ids[i]};
  std::sort(keyed.begin(), keyed.end());
  for (std::size_t i = 0; i < n; ++i) ids[i] = keyed[i].second;
}

}  // namespace paramserver
