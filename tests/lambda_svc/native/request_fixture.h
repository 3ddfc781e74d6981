// One plan over the fakes that uses every kind of input, and what its candidates must score.
#pragma once

#include <memory>
#include <vector>

#include "lambda_svc/csrc/pipeline.h"
#include "tests/lambda_svc/native/fakes.h"

namespace lambda_svc::test {

using FDType = feature_store::DType;

struct Fixture {
  static constexpr std::uint32_t kDim = 4;

  std::shared_ptr<Arena> arena = Arena::make({.bytes_max = std::size_t{1} << 28, .block_bytes = 4096});
  std::shared_ptr<FakeExecutable> executable = std::make_shared<FakeExecutable>(
      std::vector<TensorSpec>{
          {"history_rows", DType::kF32, {1, 5, kDim}},
          {"history_lengths", DType::kI32, {1}},
          {"hour", DType::kF32, {1, 1}},
          {"item_row", DType::kF32, {-1, kDim}},
          {"genres", DType::kF32, {-1, kDim}},
          {"related", DType::kF32, {-1, 3, kDim}},
          {"price", DType::kF32, {-1, 2}},
          {"item_id", DType::kI64, {-1}},
      },
      2);

  PlanSpec spec() const {
    using enum InputKind;
    using paramserver::Pooling;
    PlanSpec plan;
    plan.executable = executable;
    plan.sources[0] = std::make_shared<FakeFeatures>(
        std::vector<SlotSpec>{{"history", FDType::kI64, Layout::kPadded, 5}});
    plan.sources[1] = std::make_shared<FakeFeatures>(std::vector<SlotSpec>{{"hour", FDType::kF32, Layout::kDense, 1}});
    plan.sources[2] = std::make_shared<FakeFeatures>(std::vector<SlotSpec>{
        {"item_id", FDType::kI64, Layout::kDense, 1},
        {"genres", FDType::kI64, Layout::kRagged, 4},
        {"related", FDType::kI64, Layout::kPadded, 3},
        {"price", FDType::kF32, Layout::kDense, 2},
    });
    plan.tables = {{"item", std::make_shared<FakeTable>(kDim)}, {"genre", std::make_shared<FakeTable>(kDim)}};
    plan.inputs = {
        {Side::kUser, kRows, 0, 0, Pooling::kMean},    {Side::kUser, kLengths, 0, -1, Pooling::kMean},
        {Side::kContext, kValues, 0, -1, Pooling::kMean}, {Side::kItem, kRows, 0, 0, Pooling::kMean},
        {Side::kItem, kPooled, 1, 1, Pooling::kSum},   {Side::kItem, kRows, 2, 0, Pooling::kMean},
        {Side::kItem, kValues, 3, -1, Pooling::kMean}, {Side::kItem, kValues, 0, -1, Pooling::kMean},
    };
    plan.formula = std::make_shared<Formula>("head0 * 0.5 + head1 - head0", std::vector<std::string>{"head0", "head1"},
                                             std::vector<std::string>{});
    plan.slice_rows = 64;
    return plan;
  }

  static double row(std::int64_t id) {
    double sum = 0;
    for (std::uint32_t d = 0; d < kDim; ++d) sum += FakeTable::value(id, d);
    return sum;
  }
  static double ids_of(std::int64_t key, std::int64_t width) {
    const std::int64_t length = (key < 0 ? -key : key) % (width + 1);
    double sum = 0;
    for (std::int64_t c = 0; c < length; ++c) sum += row(key * 100 + c);
    return sum;
  }
  // The sum of everything the graph must have been fed for one candidate.
  static float head0(std::int64_t user, std::int64_t item) {
    const double shared = ids_of(user, 5) + static_cast<double>((user < 0 ? -user : user) % 6);
    const double prices = 2 * static_cast<double>(item % 1000) + 0.125;
    return static_cast<float>(shared + row(item * 100) + ids_of(item, 4) + ids_of(item, 3) + prices +
                              static_cast<double>(item * 100));
  }
};

inline RankRequest request_of(std::int64_t user, const std::vector<std::int64_t>& ids) {
  RankRequest request;
  request.user_id = user;
  request.candidate_ids = {ids.data(), ids.size() * sizeof(std::int64_t)};
  return request;
}

}  // namespace lambda_svc::test
