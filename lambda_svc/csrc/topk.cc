#include "lambda_svc/csrc/topk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace lambda_svc {
namespace {

std::uint64_t descending_key(double score) {
  if (std::isnan(score)) return std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const auto bits = std::bit_cast<std::uint64_t>(score + 0.0);  // -0.0 and 0.0 tie
  return (bits & kSign) != 0 ? bits : ~(bits | kSign);
}

bool before(const RankKey& a, const RankKey& b) { return a.key != b.key ? a.key < b.key : a.index < b.index; }

constexpr std::size_t kRadixFrom = 128;
constexpr unsigned kDigits = sizeof(std::uint64_t);

// Least significant digit first and stable, so that keys that came in index order leave ties in index order. Digits
// that all keys share, such as the low ones of scores that were float32, cost no pass.
RankKey* radix_sorted(RankKey* keys, std::size_t n, RankKey* other) {
  std::array<std::array<std::uint32_t, 256>, kDigits> counts{};
  for (std::size_t i = 0; i < n; ++i) {
    for (unsigned d = 0; d < kDigits; ++d) ++counts[d][(keys[i].key >> (8 * d)) & 255];
  }
  for (unsigned d = 0; d < kDigits; ++d) {
    if (counts[d][(keys[0].key >> (8 * d)) & 255] == n) continue;
    std::array<std::uint32_t, 256> starts;
    std::exclusive_scan(counts[d].begin(), counts[d].end(), starts.begin(), 0u);
    for (std::size_t i = 0; i < n; ++i) other[starts[(keys[i].key >> (8 * d)) & 255]++] = keys[i];
    std::swap(keys, other);
  }
  return keys;
}

}  // namespace

std::size_t top_k(const double* scores, std::size_t n, std::size_t k, RankKey* scratch, std::uint32_t* out) {
  for (std::size_t i = 0; i < n; ++i) scratch[i] = {descending_key(scores[i]), static_cast<std::uint32_t>(i)};
  const std::size_t kept = k == 0 || k >= n ? n : k;
  const RankKey* ordered = scratch;
  if (kept < n) std::nth_element(scratch, scratch + kept, scratch + n, before);
  if (kept == n && n >= kRadixFrom) {
    ordered = radix_sorted(scratch, n, scratch + n);
  } else {
    std::sort(scratch, scratch + kept, before);
  }
  for (std::size_t i = 0; i < kept; ++i) out[i] = ordered[i].index;
  return kept;
}

}  // namespace lambda_svc
