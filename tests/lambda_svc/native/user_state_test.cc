// A user state: what it stands for is not computed again, and everything about the answer stays as it was.
#include "lambda_svc/csrc/user_state.h"

#include <cstring>

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/pipeline.h"
#include "tests/lambda_svc/native/check.h"
#include "tests/lambda_svc/native/request_fixture.h"

using namespace lambda_svc;
using namespace lambda_svc::test;

namespace {

// Counts how often it is asked, as of an epoch that a test may move; from `failing` on every id is unavailable.
class CountingTable final : public paramserver::RowSource {
 public:
  std::uint32_t dim() const noexcept override { return table_.dim(); }
  std::uint64_t epoch() const noexcept override { return now; }
  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, paramserver::RowType type,
              void* out, RowStatus* status) const noexcept override {
    asked += n;
    table_.lookup(context, ids, n, type, out, status);
    if (failing) std::fill_n(status, n, RowStatus::kUnavailable);
  }
  void lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                     std::size_t bags, paramserver::Pooling mode, const float* weights, paramserver::RowType type,
                     void* out, RowStatus* status) const noexcept override {
    table_.lookup_pooled(context, ids, offsets, bags, mode, weights, type, out, status);
  }
  std::uint64_t now = 0;
  bool failing = false;
  mutable std::size_t asked = 0;

 private:
  FakeTable table_{Fixture::kDim};
};

// The fixture's plan. Its first `of_user` inputs (history rows and lengths, then the hour) are read by a graph of the
// user, the others by the items' graph.
struct World {
  Fixture fixture;
  std::shared_ptr<CountingTable> table = std::make_shared<CountingTable>();
  std::shared_ptr<FakeExecutable> user;
  PlanSpec spec = fixture.spec();
  int user_runs = 0;

  explicit World(std::size_t of_user) {
    spec.tables[0].rows = table;
    if (of_user == 0) return;
    const auto& all = fixture.executable->inputs();
    std::vector<TensorSpec> items(all.begin() + of_user, all.end());
    const std::vector<TensorSpec> shared{{"user_0", DType::kF32, {1, 3}}};
    items.push_back(shared[0]);
    user = std::make_shared<FakeExecutable>(std::vector<TensorSpec>(all.begin(), all.begin() + of_user), shared);
    user->before = [this](const Feed*, const FeedRelease&, std::size_t) { ++user_runs; };
    spec.user_inputs.assign(spec.inputs.begin(), spec.inputs.begin() + of_user);
    spec.inputs.erase(spec.inputs.begin(), spec.inputs.begin() + of_user);
    spec.user = user;
    spec.executable = std::make_shared<FakeExecutable>(items, 2);
  }
};

std::vector<std::int64_t> candidates(std::size_t n) {
  std::vector<std::int64_t> ids(n);
  for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<std::int64_t>((i * 37) % 501) - 3;
  return ids;
}

template <class T>
bool equal(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Everything but times and slices, bit for bit.
bool same_answer(const Pipeline& pipeline, const RankResult& a, const RankResult& b) {
  const auto lines = coverage_of(pipeline.plan(), a), others = coverage_of(pipeline.plan(), b);
  bool same = lines.size() == others.size() && a.tables == b.tables && a.unknown_user == b.unknown_user &&
              a.unknown_candidates == b.unknown_candidates && a.nan_scores == b.nan_scores;
  for (std::size_t i = 0; same && i < lines.size(); ++i) {
    same = lines[i].asked == others[i].asked && lines[i].answered == others[i].answered;
  }
  return same && equal(a.positions, b.positions) && equal(a.rank_scores, b.rank_scores) && equal(a.heads, b.heads) &&
         equal(a.flags, b.flags);
}

}  // namespace

TEST(user_state_gives_the_same_answer_and_computes_nothing_again) {
  for (const std::size_t of_user : {0, 2, 3}) {
    for (const std::int64_t user : {13, 4, -7}) {
      World world(of_user);
      const Pipeline pipeline(world.fixture.arena, world.spec);
      CHECK(pipeline.plan().user_reads_context == (of_user == 3));
      const auto ids = candidates(200);
      RankRequest request = request_of(user, ids);
      const RankResult without = pipeline.rank(request);
      const std::size_t asked_whole = world.table->asked;

      world.table->asked = 0;
      world.user_runs = 0;
      const Precomputed made = pipeline.precompute(request_of(user, {}));
      const std::size_t asked_user = world.table->asked;
      CHECK(asked_user == static_cast<std::size_t>((user < 0 ? -user : user) % 6));
      CHECK(world.user_runs == (of_user == 0 ? 0 : 1));
      CHECK(made.result.slices == 0 && made.result.ids_unanswered == 0);

      request.user_state = made.state.get();
      const RankResult with = pipeline.rank(request);
      CHECK(with.user_state_used && !without.user_state_used);
      CHECK(world.table->asked == asked_whole);  // the user's ids once, and those of the items
      CHECK(world.user_runs == (of_user == 0 ? 0 : 1));
      CHECK(same_answer(pipeline, with, without));
      CHECK(world.fixture.arena->stats().leases == 0);
    }
  }
}

TEST(user_state_is_of_its_graphs_and_its_epoch) {
  World world(2), other(2);
  const Pipeline pipeline(world.fixture.arena, world.spec);
  const auto ids = candidates(100);
  RankRequest request = request_of(5, ids);
  const Precomputed made = pipeline.precompute(request_of(5, {}));
  request.user_state = made.state.get();
  CHECK(pipeline.rank(request).user_state_used);

  // Another formula over the same graphs may use it; the same graphs loaded again may not.
  PlanSpec spec = world.spec;
  spec.formula = std::make_shared<Formula>("head1", std::vector<std::string>{"head0", "head1"},
                                           std::vector<std::string>{});
  CHECK(Pipeline(world.fixture.arena, spec).rank(request).user_state_used);
  const Pipeline again(other.fixture.arena, other.spec);
  CHECK(!again.rank(request).user_state_used && other.user_runs == 1);

  world.table->now = 7;
  const int runs = world.user_runs;
  const RankResult later = pipeline.rank(request);
  CHECK(!later.user_state_used && world.user_runs == runs + 1 && pipeline.epoch() == 7);
  CHECK(pipeline.precompute(request_of(5, {})).state->epoch() == 7);
}

TEST(user_state_does_not_keep_its_graphs) {
  std::shared_ptr<UserState> state;
  std::weak_ptr<FakeExecutable> user;
  {
    World world(3);
    state = Pipeline(world.fixture.arena, world.spec).precompute(request_of(5, {})).state;
    user = world.user;
  }
  CHECK(user.expired());
  World world(3);
  CHECK(!state->fits(Plan(world.spec), 0));
}

TEST(user_state_of_brought_features_holds_them) {
  World world(2);
  const Pipeline pipeline(world.fixture.arena, world.spec);
  const auto ids = candidates(70);
  const float hour = 9;
  const RequestColumn column{Side::kContext, 0, {&hour, sizeof hour}, {}, {}};
  RankRequest request = request_of(5, ids);
  request.columns = {&column, 1};
  const RankResult without = pipeline.rank(request);
  const Precomputed made = pipeline.precompute(request_of(5, {}));
  request.user_state = made.state.get();
  const RankResult with = pipeline.rank(request);  // the context is this request's own: the items' graph reads it
  CHECK(with.user_state_used && same_answer(pipeline, with, without));
}

TEST(user_state_of_rows_that_were_not_there_is_told) {
  World world(3);
  world.table->failing = true;
  const Pipeline pipeline(world.fixture.arena, world.spec);
  CHECK(pipeline.precompute(request_of(5, {})).result.ids_unanswered == 5);
  CHECK(pipeline.rank(request_of(5, candidates(3))).ids_unanswered > 5);
}

TEST(user_state_is_made_without_candidates_and_within_limits) {
  World world(3);
  const Pipeline pipeline(world.fixture.arena, world.spec);
  const auto ids = candidates(1);
  CHECK_THROWS(InvalidRequest, "candidate_ids: got 1 candidates; expected none",
               pipeline.precompute(request_of(5, ids)));
  RankRequest late = request_of(5, {});
  late.deadline_ns = 1;
  CHECK_THROWS(DeadlineExceeded, "before stage gather", pipeline.precompute(late));
  std::atomic<bool> cancelled{true};
  RankRequest gone = request_of(5, {});
  gone.cancelled = &cancelled;
  CHECK_THROWS(Cancelled, "before stage gather", pipeline.precompute(gone));
  CHECK(world.user_runs == 0 && world.fixture.arena->stats().leases == 0);
  CHECK(pipeline.precompute(request_of(5, {})).state->bytes() >= 3 * sizeof(float));
}
