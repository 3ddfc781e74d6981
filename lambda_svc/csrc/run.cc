#include <algorithm>

#include "lambda_svc/csrc/stages.h"

namespace lambda_svc {
namespace {

// Points every feed at rows [first, first + rows) of its region; user and context feeds are the same in every slice.
void point_feeds(const Plan& plan, const Workspace& space, std::size_t first, std::size_t rows) {
  auto* feeds = space.at<Feed>(plan.feed_list);
  auto* dims = space.at<std::int64_t>(plan.feed_dims);
  for (std::size_t i = 0; i < plan.feeds.size(); ++i) {
    const FeedPlan& feed = plan.feeds[i];
    const bool item = feed.side == Side::kItem;
    std::copy(feed.dims.begin(), feed.dims.end(), dims);
    dims[0] = item ? static_cast<std::int64_t>(rows) : 1;
    feeds[i] = {space.at<std::byte>(feed.region) + (item ? first * feed.bytes_per_row : 0),
                (item ? rows : 1) * feed.bytes_per_row, dims, static_cast<int>(feed.dims.size())};
    dims += feed.dims.size();
  }
}

}  // namespace

void run(const Plan& plan, const Limits& limits, const Workspace& space, RankResult* result) {
  const Executable& executable = *plan.spec().executable;
  const FeedRelease release = space.lease().release();
  const std::size_t slice_rows = plan.spec().slice_rows == 0 ? space.n() : plan.spec().slice_rows;
  auto** outs = space.at<float*>(plan.head_list);
  RunStats stats;
  for (std::size_t first = 0; first < space.n(); first += slice_rows) {
    limits.check("run");
    const std::size_t rows = std::min(slice_rows, space.n() - first);
    point_feeds(plan, space, first, rows);
    for (std::size_t h = 0; h < plan.heads(); ++h) outs[h] = space.at<float>(plan.head_scores + h) + first;
    executable.run(space.at<Feed>(plan.feed_list), release, outs, rows, &stats);
    result->slices += 1;
  }
  result->bytes_copied = stats.bytes_copied;
}

}  // namespace lambda_svc
