// One implementation for every CPU, in baseline instructions: the bytes that are stored cannot differ between them.
#include "paramserver/csrc/row_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace paramserver {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000u;
constexpr float kCodeMax = 255.0f;

// The smallest magnitude, as float bits, that does not fit: infinity, or what rounds to infinity.
constexpr std::uint32_t magnitude_limit(Stored stored) noexcept {
  return stored == Stored::kF16 ? 0x477ff000u : stored == Stored::kBF16 ? 0x7f7f8000u : kInfinity;
}

bool within(const float* row, std::size_t dim, std::uint32_t limit) noexcept {
  std::uint32_t bad = 0;
  for (std::size_t j = 0; j < dim; ++j) bad |= (std::bit_cast<std::uint32_t>(row[j]) & 0x7fffffffu) >= limit;
  return bad == 0;
}

struct Ends {
  float low;
  float high;
};

// Several lanes, because one minimum after the other waits for the one before. Lanes start at the first element, and
// the smallest of a set does not depend on the order; only which zero it is does, and adding zero makes it plus zero.
Ends ends_of(const float* row, std::size_t dim) noexcept {
  constexpr std::size_t kLanes = 8;
  float low[kLanes], high[kLanes];
  for (std::size_t k = 0; k < kLanes; ++k) low[k] = high[k] = row[0];
  const std::size_t whole = dim - dim % kLanes;
  for (std::size_t j = 0; j < whole; j += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      low[k] = row[j + k] < low[k] ? row[j + k] : low[k];
      high[k] = row[j + k] > high[k] ? row[j + k] : high[k];
    }
  }
  for (std::size_t j = whole; j < dim; ++j) {
    low[0] = std::min(low[0], row[j]);
    high[0] = std::max(high[0], row[j]);
  }
  return {*std::min_element(low, low + kLanes) + 0.0f, *std::max_element(high, high + kLanes) + 0.0f};
}

// The range is taken in float64, where it cannot overflow. A subnormal scale has few bits left and is rounded up: too
// small a scale would leave the largest element out of reach.
float scale_of(Ends ends) noexcept {
  const double wanted = (static_cast<double>(ends.high) - static_cast<double>(ends.low)) / 255.0;
  const auto scale = static_cast<float>(wanted);
  const bool short_of = scale < std::numeric_limits<float>::min() && static_cast<double>(scale) < wanted;
  return short_of ? std::nextafter(scale, std::numeric_limits<float>::infinity()) : scale;
}

bool spans_a_float(Ends ends) noexcept { return std::isfinite(kCodeMax * scale_of(ends) + ends.low); }

}  // namespace

const char* stored_name(Stored stored) noexcept {
  constexpr const char* kNames[kStoredTypes] = {"f32", "f16", "bf16", "int8"};
  return kNames[static_cast<int>(stored)];
}

bool row_fits(Stored stored, const float* row, std::size_t dim) noexcept {
  if (!within(row, dim, magnitude_limit(stored))) return false;
  return stored != Stored::kInt8 || spans_a_float(ends_of(row, dim));
}

std::string row_fault(Stored stored, const float* row, std::size_t dim) {
  const std::uint32_t limit = magnitude_limit(stored);
  for (std::size_t j = 0; j < dim; ++j) {
    if (within(row + j, 1, limit)) continue;
    return "element " + std::to_string(j) + " is " + std::to_string(row[j]) + ", expected finite numbers" +
           (stored == Stored::kF16    ? " of at most 65504 (dtype f16)"
            : stored == Stored::kBF16 ? " of at most 3.389e38 (dtype bf16)"
                                      : "");
  }
  if (row_fits(stored, row, dim)) return "";
  const Ends ends = ends_of(row, dim);
  return "elements go from " + std::to_string(ends.low) + " to " + std::to_string(ends.high) +
         ", expected a range that float32 holds, below 3.4e38 (dtype int8)";
}

void quantize_row(const float* row, std::size_t dim, std::byte* out) noexcept {
  const Ends ends = ends_of(row, dim);
  const float scale = scale_of(ends);
  const double low = static_cast<double>(ends.low);
  const double per_scale = scale > 0.0f ? 1.0 / static_cast<double>(scale) : 0.0;
  auto* codes = reinterpret_cast<std::uint8_t*>(out);
  for (std::size_t j = 0; j < dim; ++j) {
    const double steps = (static_cast<double>(row[j]) - low) * per_scale;
    codes[j] = static_cast<std::uint8_t>(static_cast<std::int32_t>(std::min(steps, 255.0) + 0.5));
  }
  const std::size_t scale_at = int8_scale_at(dim);
  std::memset(out + dim, 0, scale_at - dim);
  std::memcpy(out + scale_at, &scale, sizeof scale);
  std::memcpy(out + scale_at + sizeof scale, &ends.low, sizeof ends.low);
}

}  // namespace paramserver
