// Requests that take what was scored by their deadline: the cut is at a slice, it is told, and it is never hidden.
#include <algorithm>
#include <vector>

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/limits.h"
#include "tests/lambda_svc/native/check.h"
#include "tests/lambda_svc/native/request_fixture.h"

using namespace lambda_svc;
using namespace lambda_svc::test;

namespace {

constexpr std::int64_t kMs = 1'000'000;

std::vector<std::int64_t> candidates(std::size_t n) {
  std::vector<std::int64_t> ids(n);
  for (std::size_t i = 0; i < n; ++i) ids[i] = static_cast<std::int64_t>((i * 37) % 501);
  return ids;
}

void spin_until(std::int64_t until_ns) {
  while (monotonic_ns() < until_ns) {
  }
}

// A request for 300 candidates, five slices of 64, whose deadline passes within run number `late`; 0: it does not.
struct Late {
  Fixture fixture;
  std::vector<std::int64_t> ids = candidates(300);
  RankRequest request = request_of(13, ids);
  int runs = 0;

  explicit Late(int late) {
    fixture.executable->before = [this, late](const Feed*, const FeedRelease&, std::size_t) {
      if (++runs == late) spin_until(request.deadline_ns);
    };
    request.deadline_ns = monotonic_ns() + (late == 0 ? 60'000 : 300) * kMs;
    request.partial_ns = request.deadline_ns;
  }
  RankResult rank() { return Pipeline(fixture.arena, fixture.spec()).rank(request); }
};

}  // namespace

TEST(partial_answers_are_of_whole_slices_and_tell_what_is_missing) {
  for (const int late : {1, 2, 4}) {
    Late whole(0), part(late);
    const RankResult full = whole.rank(), cut = part.rank();
    const std::size_t scored = 64 * static_cast<std::size_t>(late);
    CHECK(part.runs == late && cut.slices == static_cast<std::uint32_t>(late));
    CHECK(cut.scored == scored && cut.missing == 300 - scored && cut.positions.size() == scored);
    CHECK(full.scored == 300 && full.missing == 0 && full.positions.size() == 300);
    // The cut answer is the whole one without those that are missing.
    std::size_t next = 0;
    for (std::size_t i = 0; i < full.positions.size(); ++i) {
      if (full.positions[i] >= scored) continue;
      CHECK(cut.positions[next] == full.positions[i] && cut.candidate_ids[next] == full.candidate_ids[i]);
      CHECK(cut.rank_scores[next] == full.rank_scores[i] && cut.heads[next] == full.heads[i]);
      CHECK(cut.heads[scored + next] == full.heads[300 + i]);
      ++next;
    }
    CHECK(next == scored);
    CHECK(part.fixture.arena->stats().leases == 0);
  }
}

TEST(partial_answers_take_the_best_of_what_is_scored) {
  Late part(2);
  part.request.top_k = 5;
  const RankResult cut = part.rank();
  CHECK(cut.positions.size() == 5 && cut.missing == 172 && cut.heads.size() == 10);
  CHECK(std::all_of(cut.positions.begin(), cut.positions.end(), [](std::uint32_t p) { return p < 128; }));
}

TEST(partial_begins_no_slice_that_would_end_late) {
  Late part(0);
  const std::int64_t slice_ns = 40 * kMs;
  part.request.partial_ns = monotonic_ns() + 100 * kMs;
  part.request.deadline_ns = part.request.partial_ns + 1000 * kMs;
  part.fixture.executable->before = [&](const Feed*, const FeedRelease&, std::size_t) {
    ++part.runs;
    spin_until(monotonic_ns() + slice_ns);
  };
  const RankResult cut = part.rank();
  CHECK(part.runs <= 2 && cut.scored == 64 * static_cast<std::size_t>(part.runs));
  CHECK(cut.missing == 300 - cut.scored);
  CHECK(monotonic_ns() < part.request.deadline_ns);
}

TEST(partial_answers_with_nothing_scored_are_no_answers) {
  Late part(0);
  part.request.deadline_ns = part.request.partial_ns = monotonic_ns();
  CHECK_THROWS(DeadlineExceeded, "before stage gather", part.rank());
  CHECK(part.runs == 0);
  // Time that is short, but not over, still scores one slice: what a slice takes is not known before.
  part.request.deadline_ns = monotonic_ns() + 5000 * kMs;
  part.request.partial_ns = 1;
  CHECK(part.rank().scored == 64 && part.runs == 1);
}

TEST(partial_is_for_those_who_ask_and_not_for_those_who_left) {
  Late plain(2);
  plain.request.partial_ns = 0;
  CHECK_THROWS(DeadlineExceeded, "before stage run", plain.rank());

  Late gone(0);
  std::atomic<bool> cancelled{false};
  gone.request.cancelled = &cancelled;
  gone.request.partial_ns = 1;
  gone.fixture.executable->before = [&](const Feed*, const FeedRelease&, std::size_t) {
    ++gone.runs;
    cancelled = true;
  };
  CHECK_THROWS(Cancelled, "before stage run", gone.rank());
  CHECK(gone.runs == 1 && gone.fixture.arena->stats().leases == 0);
}
