#include "lambda_svc/csrc/topk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lambda_svc {
namespace {

std::uint64_t descending_key(double score) {
  if (std::isnan(score)) return std::numeric_limits<std::uint64_t>::max();
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const auto bits = std::bit_cast<std::uint64_t>(score + 0.0);  // -0.0 and 0.0 tie
  return (bits & kSign) != 0 ? bits : ~(bits | kSign);
}

bool before(const RankKey& a, const RankKey& b) { return a.key != b.key ? a.key < b.key : a.index < b.index; }

}  // namespace

std::size_t top_k(const double* scores, std::size_t n, std::size_t k, RankKey* scratch, std::uint32_t* out) {
  for (std::size_t i = 0; i < n; ++i) scratch[i] = {descending_key(scores[i]), static_cast<std::uint32_t>(i)};
  const std::size_t kept = k == 0 || k >= n ? n : k;
  if (kept < n) std::nth_element(scratch, scratch + kept, scratch + n, before);
  std::sort(scratch, scratch + kept, before);
  for (std::size_t i = 0; i < kept; ++i) out[i] = scratch[i].index;
  return kept;
}

}  // namespace lambda_svc
