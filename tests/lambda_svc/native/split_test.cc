// A plan whose user side is a graph of its own, and heads that come packed.
#include <cmath>

#include "lambda_svc/csrc/errors.h"
#include "tests/lambda_svc/native/check.h"
#include "tests/lambda_svc/native/request_fixture.h"

using namespace lambda_svc;
using namespace lambda_svc::test;

namespace {

const TensorSpec kShared{"user_0", DType::kF32, {1, 3}};
const TensorSpec kMore{"user_1", DType::kF32, {1, 2, 2}};
const TensorSpec kPacked{"scores", DType::kF32, {2, -1}};

// The fixture's plan, its first three inputs being read by a graph of the user that shares `shared`.
struct Split {
  Fixture fixture;
  std::shared_ptr<FakeExecutable> user, item;

  explicit Split(std::vector<TensorSpec> shared = {kShared}, std::vector<TensorSpec> heads = {kPacked}) {
    const auto& all = fixture.executable->inputs();
    std::vector<TensorSpec> items(all.begin() + 3, all.end());
    items.insert(items.end(), shared.begin(), shared.end());
    user = std::make_shared<FakeExecutable>(std::vector<TensorSpec>(all.begin(), all.begin() + 3), std::move(shared));
    item = std::make_shared<FakeExecutable>(std::move(items), std::move(heads));
  }

  PlanSpec spec() const {
    PlanSpec plan = fixture.spec();
    plan.user_inputs.assign(plan.inputs.begin(), plan.inputs.begin() + 3);
    plan.inputs.erase(plan.inputs.begin(), plan.inputs.begin() + 3);
    plan.user = user;
    plan.executable = item;
    return plan;
  }
};

std::vector<std::int64_t> candidates(std::size_t n) {
  std::vector<std::int64_t> ids(n);
  for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<std::int64_t>((i * 37) % 501);
  return ids;
}

template <class Change>
PlanSpec changed(Change change) {
  PlanSpec spec = Split().spec();
  change(spec);
  return spec;
}

}  // namespace

TEST(split_runs_the_user_once_and_slices_of_items) {
  for (const bool packed : {true, false}) {
    const std::vector<TensorSpec> heads{{"head0", DType::kF32, {-1}}, {"head1", DType::kF32, {-1}}};
    Split split({kShared}, packed ? std::vector<TensorSpec>{kPacked} : heads);
    int users = 0, slices = 0;
    split.user->before = [&](const Feed* feeds, const FeedRelease&, std::size_t rows) {
      CHECK(rows == 1 && feeds[0].dims[0] == 1);
      ++users;
    };
    split.item->before = [&](const Feed* feeds, const FeedRelease&, std::size_t) {
      for (int i = 0; i < 6; ++i) CHECK(reinterpret_cast<std::uintptr_t>(feeds[i].data) % kFeedAlignment == 0);
      CHECK(feeds[5].rank == 2 && feeds[5].dims[0] == 1 && feeds[5].dims[1] == 3 && feeds[5].bytes == 12);
      ++slices;
    };
    const Pipeline pipeline(split.fixture.arena, split.spec());
    const auto ids = candidates(200);
    const RankResult result = pipeline.rank(request_of(13, ids));
    CHECK(users == 1 && slices == 4 && result.slices == 4);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t id = ids[result.positions[i]];
      CHECK(std::abs(result.heads[i] - Fixture::head0(13, id)) < 2e-2);
      CHECK(std::abs(result.heads[ids.size() + i] - result.heads[i] - 1.f) < 2e-2);
    }
  }
}

TEST(split_shares_several_tensors_of_any_rank) {
  Split split({kShared, kMore});
  split.item->before = [](const Feed* feeds, const FeedRelease&, std::size_t) {
    CHECK(feeds[5].rank == 2 && feeds[6].rank == 3 && feeds[6].bytes == 16);
    CHECK(static_cast<const float*>(feeds[5].data)[0] * 3 == static_cast<const float*>(feeds[6].data)[3] * 4);
  };
  const Pipeline pipeline(split.fixture.arena, split.spec());
  CHECK(pipeline.rank(request_of(5, candidates(70))).positions.size() == 70);
  CHECK(split.fixture.arena->stats().leases == 0);
}

TEST(split_must_fit_together) {
  CHECK_THROWS(PlanError, "user_inputs: got 2 for a graph with 3",
               Plan(changed([](PlanSpec& spec) { spec.user_inputs.pop_back(); })));
  CHECK_THROWS(PlanError, "user_inputs: got some without a graph",
               Plan(changed([](PlanSpec& spec) { spec.user = nullptr; })));
  CHECK_THROWS(PlanError, "inputs: got 6 for a graph with 5",
               Plan(changed([](PlanSpec& spec) { spec.inputs.push_back(spec.inputs[0]); })));
  CHECK_THROWS(PlanError, "reads the item side",
               Plan(changed([](PlanSpec& spec) { spec.user_inputs[0] = spec.inputs[0]; })));
  CHECK_THROWS(PlanError, "output user_1: the graph of the items does not take it",
               Plan(changed([](PlanSpec& spec) { spec.user = Split({kMore}).user; })));
  CHECK_THROWS(PlanError, "declares 2 heads for a graph with 3", Plan(changed([](PlanSpec& spec) {
                 spec.executable = Split({kShared}, {{"scores", DType::kF32, {3, -1}}}).item;
               })));
}
