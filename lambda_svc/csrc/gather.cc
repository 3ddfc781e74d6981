#include <algorithm>
#include <cstring>
#include <new>

#include "lambda_svc/csrc/stages.h"

namespace lambda_svc {
namespace {

using feature_store::ColumnView;
using feature_store::FeatureSource;
using feature_store::SlotOut;

// Offsets are read as int32 by the feature source, so unaligned ones are moved to where they may be.
const std::int32_t* aligned_offsets(const Buffer& offsets, std::vector<std::vector<std::int32_t>>* kept) {
  if (reinterpret_cast<std::uintptr_t>(offsets.data) % alignof(std::int32_t) == 0) {
    return static_cast<const std::int32_t*>(offsets.data);
  }
  std::vector<std::int32_t>& copy = kept->emplace_back(offsets.bytes / sizeof(std::int32_t));
  std::memcpy(copy.data(), offsets.data, offsets.bytes);
  return copy.data();
}

void gather_side(const Plan& plan, Side side, const std::int64_t* keys, const RankRequest& request,
                 const Workspace& space, RankResult* result) {
  const FeatureSource& source = *plan.source(side);
  const SidePlan& at = plan.side(side);
  auto* outs = space.at<SlotOut>(at.slot_outs);
  for (std::size_t s = 0; s < at.slots.size(); ++s) {
    const SlotRegions& regions = at.slots[s];
    const auto layout = source.slots()[s].layout;
    outs[s] = SlotOut{.values = space.at<void>(regions.values)};
    if (layout == feature_store::Layout::kRagged) outs[s].offsets = space.at<std::int32_t>(regions.offsets);
    if (layout == feature_store::Layout::kPadded) outs[s].lengths = space.at<std::int32_t>(regions.lengths);
  }
  auto* columns = space.at<ColumnView>(at.columns);
  std::fill_n(columns, source.features().size(), ColumnView{});
  std::vector<std::vector<std::int32_t>> kept;
  for (const RequestColumn& column : request.columns) {
    if (column.side != side) continue;
    columns[column.feature] = {true, column.values.data, aligned_offsets(column.row_offsets, &kept),
                               aligned_offsets(column.byte_offsets, &kept)};
  }
  auto* known = plan.cached(side) ? space.at<std::uint8_t>(at.known) : nullptr;
  source.gather(keys, space.rows(side), columns, outs, known, &result->features[static_cast<int>(side)]);
}

void gather_user(const Plan& plan, const RankRequest& request, const Workspace& space, RankResult* result) {
  auto* key = space.at<std::int64_t>(plan.user_key);
  *key = request.user_id;
  if (plan.source(Side::kUser) != nullptr) gather_side(plan, Side::kUser, key, request, space, result);
  if (plan.cached(Side::kUser)) {
    result->unknown_user = *space.at<std::uint8_t>(plan.side(Side::kUser).known) == 0;
  }
}

// A context has no id; its features come with the request or are defaults.
void gather_context(const Plan& plan, const RankRequest& request, const Workspace& space, RankResult* result) {
  auto* key = space.at<std::int64_t>(plan.user_key);
  *key = 0;
  if (plan.source(Side::kContext) != nullptr) gather_side(plan, Side::kContext, key, request, space, result);
}

void gather_items(const Plan& plan, const RankRequest& request, const Workspace& space, RankResult* result) {
  auto* ids = space.at<std::int64_t>(plan.candidate_ids);
  std::memcpy(ids, request.candidate_ids.data, request.candidate_ids.bytes);
  if (plan.source(Side::kItem) != nullptr) gather_side(plan, Side::kItem, ids, request, space, result);
  if (plan.cached(Side::kItem)) {
    const auto* known = space.at<std::uint8_t>(plan.side(Side::kItem).known);
    result->unknown_candidates = static_cast<std::uint64_t>(std::count(known, known + space.n(), std::uint8_t{0}));
  }
}

}  // namespace

void gather(const Plan& plan, Part part, const RankRequest& request, const Workspace& space, RankResult* result) {
  if (part != Part::kBesideState) gather_user(plan, request, space, result);
  if (part != Part::kUserState || plan.user_reads_context) gather_context(plan, request, space, result);
  if (part != Part::kUserState) gather_items(plan, request, space, result);
}

}  // namespace lambda_svc
