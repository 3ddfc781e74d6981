#include "lambda_svc/csrc/topk.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/lambda_svc/native/check.h"

using namespace lambda_svc;

namespace {

std::vector<std::uint32_t> best(const std::vector<double>& scores, std::size_t k) {
  std::vector<RankKey> scratch(2 * scores.size());
  std::vector<std::uint32_t> out(scores.size());
  out.resize(top_k(scores.data(), scores.size(), k, scratch.data(), out.data()));
  return out;
}

std::vector<std::uint32_t> reference(const std::vector<double>& scores, std::size_t k) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b])) return !std::isnan(scores[a]) && std::isnan(scores[b]);
    return scores[a] > scores[b];
  });
  if (k != 0 && k < order.size()) order.resize(k);
  return order;
}

}  // namespace

TEST(topk_orders_infinities_zeros_and_nan) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> scores{nan, -inf, -0.0, 0.0, inf, -nan, -1, 1};
  CHECK(best(scores, 0) == (std::vector<std::uint32_t>{4, 7, 2, 3, 6, 1, 0, 5}));
  CHECK(best({}, 3).empty());
}

TEST(topk_matches_a_stable_sort) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> scores(random() % 400);
    const int distinct = 1 + static_cast<int>(random() % 30);
    for (double& score : scores) {
      score = static_cast<double>(random() % distinct) - distinct / 2;
      if (random() % 10 == 0) score = std::numeric_limits<double>::quiet_NaN();
    }
    const std::size_t k = random() % 450;
    CHECK(best(scores, k) == reference(scores, k));
  }
}
