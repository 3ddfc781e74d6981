#include "lambda_svc/csrc/plan.h"

#include <algorithm>
#include <limits>

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/plan_check.h"
#include "lambda_svc/csrc/topk.h"

namespace lambda_svc {

using feature_store::Layout;
using feature_store::SlotSpec;

Plan::Plan(PlanSpec spec) : spec_(std::move(spec)) {
  check_whole();
  add_sides();
  const std::vector<TensorSpec>& tensors = spec_.executable->inputs();
  for (std::size_t i = 0; i < spec_.inputs.size(); ++i) {
    const Part part = spec_.inputs[i].side == Side::kUser ? Part::kUserState : Part::kBesideState;
    feeds.push_back(feed_of(spec_.inputs[i], tensors[i], part));
  }
  for (std::size_t i = 0; i < spec_.user_inputs.size(); ++i) {
    user_feeds.push_back(feed_of(spec_.user_inputs[i], spec_.user->inputs()[i], Part::kUserState));
    user_reads_context = user_reads_context || spec_.user_inputs[i].side == Side::kContext;
  }
  add_shared();
  for (const FeedPlan& feed : feeds) {
    if (feed.side == Side::kUser) user_values.push_back(feed);
  }
  add_scratch();
}

void Plan::check_whole() const {
  if (spec_.executable == nullptr) throw PlanError("executable", "got none");
  if (spec_.formula == nullptr) throw PlanError("formula", "got none");
  check_user();
  const std::size_t given = spec_.user == nullptr ? 0 : spec_.user->outputs().size();
  const std::size_t wanted = spec_.executable->inputs().size() - given;
  if (spec_.inputs.size() != wanted) {
    throw PlanError("inputs", "got " + std::to_string(spec_.inputs.size()) + " for a graph with " +
                                  std::to_string(wanted) + "; expected one for each, in the graph's order");
  }
  if (spec_.formula->heads().size() != heads()) {
    throw PlanError("formula", "declares " + std::to_string(spec_.formula->heads().size()) +
                                   " heads for a graph with " + std::to_string(heads()) + " outputs");
  }
  if (spec_.slice_rows % kSliceMultiple != 0) {
    throw PlanError("slice_rows", "got " + std::to_string(spec_.slice_rows) + "; expected a multiple of " +
                                      std::to_string(kSliceMultiple) + ", or 0 for one slice");
  }
  for (const NamedTable& table : spec_.tables) {
    if (table.rows == nullptr) throw PlanError("tables[" + table.name + "]", "got no rows");
  }
}

// What the user's executable gives must be what the executable takes last, name for name.
void Plan::check_user() const {
  if (spec_.user == nullptr) {
    if (!spec_.user_inputs.empty()) throw PlanError("user_inputs", "got some without a graph of the user");
    return;
  }
  if (spec_.user_inputs.size() != spec_.user->inputs().size()) {
    throw PlanError("user_inputs", "got " + std::to_string(spec_.user_inputs.size()) + " for a graph with " +
                                       std::to_string(spec_.user->inputs().size()) + "; expected one for each");
  }
  for (std::size_t i = 0; i < spec_.user_inputs.size(); ++i) {
    if (spec_.user_inputs[i].side != Side::kItem) continue;
    throw PlanError("input " + spec_.user->inputs()[i].name, "the user's graph reads the item side");
  }
  const std::vector<TensorSpec>&given = spec_.user->outputs(), &taken = spec_.executable->inputs();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const TensorSpec* match = given.size() > taken.size() ? nullptr : &taken[taken.size() - given.size() + i];
    const bool fits = match != nullptr && match->name == given[i].name && match->shape == given[i].shape &&
                      match->dtype == DType::kF32;
    if (!fits) throw PlanError("output " + given[i].name, "the graph of the items does not take it");
  }
}

RegionIndex Plan::add(Side rows_of, std::size_t bytes_per_row, std::size_t bytes_fixed) {
  regions.push_back({rows_of, bytes_per_row, bytes_fixed});
  return static_cast<RegionIndex>(regions.size() - 1);
}

void Plan::add_sides() {
  for (const Side side : {Side::kUser, Side::kContext, Side::kItem}) {
    const feature_store::FeatureSource* from = source(side);
    if (from == nullptr) continue;
    SidePlan& plan = sides_[static_cast<int>(side)];
    for (const SlotSpec& slot : from->slots()) {
      if (slot.width == 0) throw PlanError("slot " + slot.name, "has width 0");
      SlotRegions at;
      at.values = add(side, slot.width * (slot.dtype == feature_store::DType::kI64 ? 8 : 4));
      if (slot.layout == Layout::kRagged) {
        at.offsets = add(side, sizeof(std::int32_t), sizeof(std::int32_t));
        candidates_max_ = std::min<std::size_t>(candidates_max_, std::numeric_limits<std::int32_t>::max() / slot.width);
      }
      if (slot.layout == Layout::kPadded) at.lengths = add(side, sizeof(std::int32_t));
      plan.slots.push_back(at);
    }
    if (cached(side)) plan.known = add(side, sizeof(std::uint8_t));
    plan.slot_outs = add(Side::kUser, 0, from->slots().size() * sizeof(feature_store::SlotOut));
    plan.columns = add(Side::kUser, 0, from->features().size() * sizeof(feature_store::ColumnView));
  }
}

const SlotSpec& Plan::slot_of(const PlanInput& input, const std::string& name) const {
  const feature_store::FeatureSource* from = source(input.side);
  const char* side_name = kSideNames[static_cast<int>(input.side)];
  if (from == nullptr) throw PlanError(name, std::string("reads the ") + side_name + " side, which has no slots");
  if (input.slot >= from->slots().size()) {
    throw PlanError(name, "slot " + std::to_string(input.slot) + " of the " + side_name + " side, which has " +
                              std::to_string(from->slots().size()));
  }
  const bool reads_table = input.kind == InputKind::kRows || input.kind == InputKind::kPooled;
  if (reads_table && (input.table < 0 || static_cast<std::size_t>(input.table) >= spec_.tables.size())) {
    throw PlanError(name, "table " + std::to_string(input.table) + " of " + std::to_string(spec_.tables.size()));
  }
  return from->slots()[input.slot];
}

FeedPlan Plan::feed_of(const PlanInput& input, const TensorSpec& tensor, Part part) {
  const SlotSpec& slot = slot_of(input, "input " + tensor.name);
  const bool reads_table = input.kind == InputKind::kRows || input.kind == InputKind::kPooled;
  const std::size_t dim = reads_table ? spec_.tables[input.table].rows->dim() : 0;
  check_input(tensor, input, slot, dim);

  FeedPlan feed{.side = input.side, .dims = tensor.shape};
  feed.bytes_per_row = tensor.dtype == DType::kI64 ? 8 : 4;
  for (std::size_t d = 1; d < tensor.shape.size(); ++d) feed.bytes_per_row *= tensor.shape[d];
  const SlotRegions& at = side(input.side).slots[input.slot];
  switch (input.kind) {
    case InputKind::kValues: feed.region = at.values; break;
    case InputKind::kLengths: feed.region = at.lengths; break;
    case InputKind::kRows:
    case InputKind::kPooled: feed.region = add_lookup(input, slot, part); break;
  }
  return feed;
}

void Plan::add_shared() {
  if (spec_.user == nullptr) return;
  shared = static_cast<RegionIndex>(regions.size());
  for (const TensorSpec& tensor : spec_.user->outputs()) {
    const std::size_t bytes = values_of(tensor, 1) * sizeof(float);
    feeds.push_back({.side = Side::kUser, .region = add(Side::kUser, bytes), .bytes_per_row = bytes,
                     .dims = tensor.shape});
  }
  shared_list = add(Side::kUser, 0, spec_.user->outputs().size() * sizeof(float*));
}

RegionIndex Plan::add_lookup(const PlanInput& input, const SlotSpec& slot, Part part) {
  const auto needed = [part](LookupPlan* lookup) {
    (part == Part::kUserState ? lookup->for_user_state : lookup->beside_state) = true;
    return lookup->rows;
  };
  for (LookupPlan& other : lookups) {
    const PlanInput& source = other.source;
    const bool same = source.side == input.side && source.slot == input.slot && source.table == input.table &&
                      source.kind == input.kind &&
                      (input.kind == InputKind::kRows || source.pooling == input.pooling);
    if (same) return needed(&other);
  }
  LookupPlan lookup{.source = input, .cells = slot.width, .dim = spec_.tables[input.table].rows->dim()};
  const std::size_t rows_a_row = input.kind == InputKind::kPooled ? 1 : lookup.cells;
  lookup.rows = add(input.side, rows_a_row * lookup.dim * sizeof(float));
  lookups.push_back(lookup);
  return needed(&lookups.back());
}

void Plan::add_scratch() {
  std::size_t item_cells = 0;
  std::size_t single_cells = 0;
  for (const LookupPlan& lookup : lookups) {
    std::size_t& most = lookup.source.side == Side::kItem ? item_cells : single_cells;
    most = std::max(most, lookup.cells);
  }
  std::size_t dims = 0, user_dims = 0;
  for (const FeedPlan& feed : feeds) dims += feed.dims.size();
  for (const FeedPlan& feed : user_feeds) user_dims += feed.dims.size();
  candidate_ids = add(Side::kItem, sizeof(std::int64_t));
  user_key = add(Side::kUser, sizeof(std::int64_t));
  statuses = add(Side::kItem, item_cells, single_cells);
  feed_list = add(Side::kUser, 0, std::max(feeds.size(), user_feeds.size()) * sizeof(Feed));
  feed_dims = add(Side::kUser, 0, std::max(dims, user_dims) * sizeof(std::int64_t));
  head_list = add(Side::kUser, 0, heads() * sizeof(float*));
  head_scores = add(Side::kItem, sizeof(float));
  for (std::size_t h = 1; h < heads(); ++h) add(Side::kItem, sizeof(float));
  if (packed()) packed_heads = add(Side::kItem, heads() * sizeof(float));
  rank_scores = add(Side::kItem, sizeof(double));
  rank_keys = add(Side::kItem, 2 * sizeof(RankKey));
  order = add(Side::kItem, sizeof(std::uint32_t));
  formula_stack = add(Side::kUser, 0, spec_.formula->scratch_values() * sizeof(double));
}

}  // namespace lambda_svc
