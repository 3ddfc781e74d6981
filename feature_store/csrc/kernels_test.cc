#include "feature_store/csrc/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "feature_store/csrc/check.h"

using namespace feature_store;

// Floats of every exponent and sign, the special ones included.
static std::vector<float> many_floats() {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < (1ULL << 32); bits += 104729) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0f, -0.0f, -1.0f, 1.0f, infinity, -infinity, std::nanf(""), 1e-45f,
                            std::numeric_limits<float>::max(), std::nextafterf(-1.0f, 0.0f)}) {
    values.push_back(value);
  }
  return values;
}

static bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(log1p_is_right_and_the_same_everywhere) {
  const std::vector<float> inputs = many_floats();
  std::vector<float> expected = inputs;
  kernels(Isa::kScalar).log1p(expected.data(), expected.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const float truth = static_cast<float>(std::log1p(static_cast<double>(inputs[i])));
    if (std::isnan(truth)) CHECK(std::bit_cast<std::uint32_t>(expected[i]) == 0x7fc00000U);
    else CHECK(expected[i] == truth || std::nextafterf(truth, expected[i]) == expected[i]);
  }
  for (const Isa isa : isas_available()) {
    std::vector<float> values = inputs;
    kernels(isa).log1p(values.data(), values.size());
    CHECK(same(values, expected));
  }
}

TEST(clip_keeps_nan_and_is_the_same_everywhere) {
  const std::vector<float> inputs = many_floats();
  std::vector<float> expected = inputs;
  kernels(Isa::kScalar).clip(expected.data(), expected.size(), -2.5f, 7.0f);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CHECK(std::isnan(inputs[i]) ? std::memcmp(&inputs[i], &expected[i], 4) == 0
                                : expected[i] == std::clamp(inputs[i], -2.5f, 7.0f));
  }
  for (const Isa isa : isas_available()) {
    std::vector<float> values = inputs;
    kernels(isa).clip(values.data(), values.size(), -2.5f, 7.0f);
    CHECK(same(values, expected));
  }
}

TEST(bucketize_counts_boundaries_not_above) {
  const std::vector<float> inputs = many_floats();
  for (const std::size_t m : {1, 2, 3, 24, 25, 1000}) {
    std::vector<float> boundaries;
    const float middle = static_cast<float>(m) / 2;
    for (std::size_t i = 0; i < m; ++i) boundaries.push_back((static_cast<float>(i) - middle) * 3e35f);
    std::vector<std::int64_t> expected(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      expected[i] = std::isnan(inputs[i]) ? static_cast<std::int64_t>(m)
                        : std::upper_bound(boundaries.begin(), boundaries.end(), inputs[i]) - boundaries.begin();
    }
    for (const Isa isa : isas_available()) {
      std::vector<std::int64_t> out(inputs.size());
      kernels(isa).bucketize(inputs.data(), inputs.size(), boundaries.data(), m, out.data());
      CHECK(out == expected);
    }
  }
}

TEST(gather_picks_rows) {
  std::vector<std::uint32_t> source32(1000), rows(77), out32(77);
  std::vector<std::uint64_t> source64(1000), out64(77);
  for (std::uint32_t i = 0; i < 1000; ++i) source64[i] = (std::uint64_t{source32[i] = i * 2654435761U} << 32) | i;
  for (std::uint32_t i = 0; i < 77; ++i) rows[i] = i * 31 % 1000;
  for (const Isa isa : isas_available()) {
    kernels(isa).gather32(source32.data(), rows.data(), rows.size(), out32.data());
    kernels(isa).gather64(source64.data(), rows.data(), rows.size(), out64.data());
    for (std::size_t i = 0; i < rows.size(); ++i) CHECK(out32[i] == source32[rows[i]] && out64[i] == source64[rows[i]]);
  }
}
