#include <algorithm>

#include "lambda_svc/csrc/stages.h"

namespace lambda_svc {
namespace {

// Points every feed at rows [first, first + rows) of its region; user and context feeds are the same in every slice.
const Feed* point_feeds(const Plan& plan, const std::vector<FeedPlan>& plans, const Workspace& space,
                        std::size_t first, std::size_t rows) {
  auto* feeds = space.at<Feed>(plan.feed_list);
  auto* dims = space.at<std::int64_t>(plan.feed_dims);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const FeedPlan& feed = plans[i];
    const bool item = feed.side == Side::kItem;
    std::copy(feed.dims.begin(), feed.dims.end(), dims);
    dims[0] = item ? static_cast<std::int64_t>(rows) : 1;
    feeds[i] = {space.at<std::byte>(feed.region) + (item ? first * feed.bytes_per_row : 0),
                (item ? rows : 1) * feed.bytes_per_row, dims, static_cast<int>(feed.dims.size())};
    dims += feed.dims.size();
  }
  return feeds;
}

// What depends on the user and the moment alone: once a request, whatever the slices.
void run_user(const Plan& plan, const Workspace& space, const FeedRelease& release, RunStats* stats) {
  const Executable* user = plan.spec().user.get();
  if (user == nullptr) return;
  auto** outs = space.at<float*>(plan.shared_list);
  for (std::size_t i = 0; i < user->outputs().size(); ++i) outs[i] = space.at<float>(plan.shared + i);
  user->run(point_feeds(plan, plan.user_feeds, space, 0, 1), release, outs, 1, stats);
}

// Candidates [first, first + rows): their scores go where the heads' are.
void run_slice(const Plan& plan, const Workspace& space, const FeedRelease& release, std::size_t first,
               std::size_t rows, RunStats* stats) {
  auto** outs = space.at<float*>(plan.head_list);
  for (std::size_t h = 0; h < plan.heads(); ++h) outs[h] = space.at<float>(plan.head_scores + h) + first;
  const Feed* feeds = point_feeds(plan, plan.feeds, space, first, rows);
  if (!plan.packed()) {
    plan.spec().executable->run(feeds, release, outs, rows, stats);
    return;
  }
  auto* packed = space.at<float>(plan.packed_heads);
  plan.spec().executable->run(feeds, release, &packed, rows, stats);
  for (std::size_t h = 0; h < plan.heads(); ++h) std::copy_n(packed + h * rows, rows, outs[h]);
}

void run_slices(const Plan& plan, const Limits& limits, const Workspace& space, const FeedRelease& release,
                RunStats* stats, RankResult* result) {
  const std::size_t slice_rows = plan.spec().slice_rows == 0 ? space.n() : plan.spec().slice_rows;
  std::int64_t longest_ns = 0;
  while (result->scored < space.n()) {
    limits.check_cancelled("run");
    if (result->scored != 0 && limits.settles_for_part(longest_ns)) break;
    limits.check("run");
    const std::int64_t began_ns = monotonic_ns();
    const std::size_t rows = std::min(slice_rows, space.n() - result->scored);
    run_slice(plan, space, release, result->scored, rows, stats);
    longest_ns = std::max(longest_ns, monotonic_ns() - began_ns);
    result->scored += rows;
    result->slices += 1;
  }
}

}  // namespace

void run(const Plan& plan, Part part, const Limits& limits, const Workspace& space, RankResult* result) {
  const FeedRelease release = space.lease().release();
  RunStats stats;
  limits.check("run");
  Stopwatch watch;
  try {
    if (part != Part::kBesideState) run_user(plan, space, release, &stats);
    run_slices(plan, limits, space, release, &stats, result);
  } catch (DeadlineExceeded& error) {
    error.run_us = watch.lap_us();
    throw;
  } catch (Cancelled& error) {
    error.run_us = watch.lap_us();
    throw;
  }
  result->missing = space.n() - result->scored;
  result->bytes_copied = stats.bytes_copied;
}

}  // namespace lambda_svc
