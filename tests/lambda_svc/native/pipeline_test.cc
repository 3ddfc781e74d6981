#include "lambda_svc/csrc/pipeline.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/limits.h"
#include "tests/lambda_svc/native/check.h"
#include "tests/lambda_svc/native/request_fixture.h"

using namespace lambda_svc;
using namespace lambda_svc::test;

namespace {

std::vector<std::int64_t> candidates(std::size_t n) {
  std::vector<std::int64_t> ids(n);
  for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<std::int64_t>((i * 37) % 501) - 3;
  return ids;
}

}  // namespace

TEST(pipeline_feeds_every_kind_of_input) {
  Fixture fixture;
  const Pipeline pipeline(fixture.arena, fixture.spec());
  for (const std::size_t n : {1, 63, 64, 65, 200, 1000}) {
    const auto ids = candidates(n);
    const RankResult result = pipeline.rank(request_of(13, ids));
    CHECK(result.positions.size() == n);
    CHECK(result.slices == (n + 63) / 64);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at = result.positions[i];
      CHECK(result.candidate_ids[i] == ids[at]);
      CHECK(std::abs(result.heads[i] - Fixture::head0(13, ids[at])) < 1e-2);
      CHECK(result.heads[n + i] - result.heads[i] == 1.f);
      CHECK(result.rank_scores[i] == result.heads[i] * 0.5 + result.heads[n + i] - result.heads[i]);
      CHECK(i == 0 || result.rank_scores[i - 1] >= result.rank_scores[i]);
      CHECK(((result.flags[i] & kCandidateUnknown) != 0) == (ids[at] < 0));
    }
    const auto negative = std::count_if(ids.begin(), ids.end(), [](std::int64_t id) { return id < 0; });
    CHECK(result.unknown_candidates == static_cast<std::size_t>(negative));
    CHECK(result.bytes_copied == 0);
    CHECK(!result.unknown_user);
  }
  CHECK(fixture.arena->stats().leases == 0);
}

TEST(pipeline_feeds_aligned_slices_and_the_same_user_memory) {
  Fixture fixture;
  const void* history = nullptr;
  int runs = 0;
  fixture.executable->before = [&](const Feed* feeds, const FeedRelease&, std::size_t rows) {
    CHECK(rows <= 64);
    for (int i = 0; i < 8; ++i) CHECK(reinterpret_cast<std::uintptr_t>(feeds[i].data) % kFeedAlignment == 0);
    CHECK(feeds[0].dims[0] == 1 && feeds[3].dims[0] == static_cast<std::int64_t>(rows));
    CHECK(feeds[5].bytes == rows * 3 * Fixture::kDim * sizeof(float));
    CHECK(history == nullptr || history == feeds[0].data);
    history = feeds[0].data;
    ++runs;
  };
  const Pipeline pipeline(fixture.arena, fixture.spec());
  pipeline.rank(request_of(5, candidates(130)));
  CHECK(runs == 3);
}

TEST(pipeline_counts_coverage_per_source_and_table) {
  Fixture fixture;
  const Pipeline pipeline(fixture.arena, fixture.spec());
  const std::vector<std::int64_t> ids{1, 2, -3};
  const RankResult result = pipeline.rank(request_of(-13, ids));
  CHECK(result.unknown_user);
  const auto lines = coverage_of(pipeline.plan(), result);
  CHECK(lines.size() == 5);
  CHECK(lines[0].source == "user" && lines[0].asked == 1 && lines[0].answered == 0);
  CHECK(lines[2].source == "item" && lines[2].asked == 12 && lines[2].answered == 8);
  // item: the user's 1 history id, 3 item ids, 1 + 2 + 3 related ids; those that end in 0 are unknown to the table.
  std::uint64_t asked = 0, unknown = 0;
  const auto count = [&](std::int64_t key, std::int64_t width, bool fixed) {
    const std::int64_t length = fixed ? width : (key < 0 ? -key : key) % (width + 1);
    for (std::int64_t c = 0; c < length; ++c, ++asked) unknown += (key * 100 + c) % 10 == 0 ? 1 : 0;
  };
  count(-13, 5, false);
  for (const std::int64_t id : ids) count(id, 1, true), count(id, 3, false);
  CHECK(lines[3].source == "table/item" && lines[3].asked == asked && lines[3].answered == asked - unknown);
  CHECK(lines[4].source == "table/genre" && lines[4].asked == 1 + 2 + 3);
}

TEST(pipeline_calls_nothing_unknown_without_a_cache) {
  Fixture fixture;
  PlanSpec spec = fixture.spec();
  spec.cached = {false, false, false};
  const Pipeline pipeline(fixture.arena, std::move(spec));
  const std::vector<std::int64_t> ids{1, 2, -3};
  const RankResult result = pipeline.rank(request_of(-13, ids));
  CHECK(!result.unknown_user && result.unknown_candidates == 0);
  CHECK(std::count(result.flags.begin(), result.flags.end(), 0) == 3);
  CHECK(coverage_of(pipeline.plan(), result)[2].answered == 8);
}

TEST(pipeline_without_candidates_never_asks_the_engine) {
  Fixture fixture;
  fixture.executable->before = [](const Feed*, const FeedRelease&, std::size_t) { CHECK(false); };
  const Pipeline pipeline(fixture.arena, fixture.spec());
  const RankResult result = pipeline.rank(request_of(1, {}));
  CHECK(result.positions.empty() && result.heads.empty() && result.slices == 0);
  CHECK(fixture.arena->stats().leases_total == 0);
}

TEST(pipeline_stops_before_the_slice_that_would_be_late) {
  Fixture fixture;
  const auto ids = candidates(300);
  int runs = 0;
  RankRequest request = request_of(1, ids);
  fixture.executable->before = [&](const Feed*, const FeedRelease&, std::size_t) {
    if (++runs < 3) return;
    while (monotonic_ns() < request.deadline_ns) {
    }
  };
  const Pipeline pipeline(fixture.arena, fixture.spec());
  request.deadline_ns = monotonic_ns() + 200'000'000;
  CHECK_THROWS(DeadlineExceeded, "before stage run", pipeline.rank(request));
  CHECK(runs == 3);
  for (const std::int64_t past : {std::int64_t{1}, std::numeric_limits<std::int64_t>::min()}) {
    request.deadline_ns = past;
    CHECK_THROWS(DeadlineExceeded, "before stage gather", pipeline.rank(request));
  }
  CHECK(runs == 3);

  std::atomic<bool> cancelled{false};
  request.deadline_ns = 0;
  request.cancelled = &cancelled;
  runs = 0;
  fixture.executable->before = [&](const Feed*, const FeedRelease&, std::size_t) { cancelled = ++runs == 2; };
  CHECK_THROWS(Cancelled, "before stage run", pipeline.rank(request));
  CHECK(runs == 2);
  CHECK(fixture.arena->stats().leases == 0);
}

TEST(pipeline_lets_engine_errors_through_and_keeps_nothing) {
  Fixture fixture;
  fixture.executable->before = [](const Feed*, const FeedRelease&, std::size_t) { throw EngineError("no"); };
  const Pipeline pipeline(fixture.arena, fixture.spec());
  CHECK_THROWS(EngineError, "no", pipeline.rank(request_of(1, candidates(10))));
  CHECK(fixture.arena->stats().leases == 0);
}

TEST(pipeline_puts_nan_last_and_flags_it) {
  Fixture fixture;
  const Pipeline pipeline(fixture.arena, fixture.spec());
  const std::vector<std::int64_t> ids{1, 2, 3, 4};
  std::vector<float> prices{1, 1, std::numeric_limits<float>::quiet_NaN(), 1, 1, 1, 1, 1};
  const RequestColumn column{Side::kItem, 3, {prices.data(), prices.size() * sizeof(float)}, {}, {}};
  RankRequest request = request_of(1, ids);
  request.columns = {&column, 1};
  RankResult result = pipeline.rank(request);
  CHECK(result.nan_scores == 1);
  CHECK(result.positions[3] == 1 && result.flags[3] == kCandidateNan);
  request.top_k = 2;
  result = pipeline.rank(request);
  CHECK(result.positions.size() == 2 && result.heads.size() == 4 && result.nan_scores == 1);
}

TEST(request_checks_every_buffer_before_reading_it) {
  Fixture fixture;
  const Pipeline pipeline(fixture.arena, fixture.spec());
  const std::vector<std::int64_t> ids{1, 2};
  const std::vector<float> values(8);
  const auto with = [&](RequestColumn column) {
    RankRequest request = request_of(1, ids);
    request.columns = {&column, 1};
    pipeline.rank(request);
  };
  CHECK_THROWS(InvalidRequest, "item_columns[price]: got 4 bytes", with({Side::kItem, 3, {values.data(), 4}, {}, {}}));
  CHECK_THROWS(InvalidRequest, "feature 9", with({Side::kItem, 9, {values.data(), 4}, {}, {}}));
  const std::vector<std::int32_t> falling{0, 2, 1}, late{1, 1, 1}, many{0, 5, 5}, fine{0, 1, 1};
  const Buffer id{ids.data(), 8};
  const auto offsets = [](const std::vector<std::int32_t>& of) { return Buffer{of.data(), of.size() * 4}; };
  CHECK_THROWS(InvalidRequest, "genres].row_offsets", with({Side::kItem, 1, id, offsets(falling), {}}));
  CHECK_THROWS(InvalidRequest, "first offset of 1", with({Side::kItem, 1, id, offsets(late), {}}));
  CHECK_THROWS(InvalidRequest, "ascend by 0 to 4", with({Side::kItem, 1, id, offsets(many), {}}));
  CHECK_THROWS(InvalidRequest, "row_offsets", with({Side::kItem, 1, id, {}, {}}));
  with({Side::kItem, 1, id, offsets(fine), {}});

  // Offsets and values at odd addresses are read all the same.
  std::vector<std::byte> odd(64);
  std::memcpy(odd.data() + 1, fine.data(), 12);
  with({Side::kItem, 1, id, {odd.data() + 1, 12}, {}});

  RankRequest request = request_of(1, ids);
  request.candidate_ids.bytes = 9;
  CHECK_THROWS(InvalidRequest, "candidate_ids", pipeline.rank(request));
  const Buffer extra{values.data(), 8};
  request = request_of(1, ids);
  request.formula_inputs = {&extra, 1};
  CHECK_THROWS(InvalidRequest, "formula_inputs", pipeline.rank(request));
}
