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
  for (std::size_t i = 0; i < spec_.inputs.size(); ++i) add_input(i);
  add_scratch();
}

void Plan::check_whole() const {
  if (spec_.executable == nullptr) throw PlanError("executable", "got none");
  if (spec_.formula == nullptr) throw PlanError("formula", "got none");
  const std::size_t wanted = spec_.executable->inputs().size();
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

const SlotSpec& Plan::slot_of(std::size_t index) const {
  const PlanInput& input = spec_.inputs[index];
  const std::string name = "input " + spec_.executable->inputs()[index].name;
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

void Plan::add_input(std::size_t index) {
  const SlotSpec& slot = slot_of(index);
  const PlanInput& input = spec_.inputs[index];
  const TensorSpec& tensor = spec_.executable->inputs()[index];
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
    case InputKind::kPooled: feed.region = add_lookup(input, slot); break;
  }
  feeds.push_back(std::move(feed));
}

RegionIndex Plan::add_lookup(const PlanInput& input, const SlotSpec& slot) {
  for (const LookupPlan& other : lookups) {
    const PlanInput& source = other.source;
    const bool same = source.side == input.side && source.slot == input.slot && source.table == input.table &&
                      source.kind == input.kind &&
                      (input.kind == InputKind::kRows || source.pooling == input.pooling);
    if (same) return other.rows;
  }
  LookupPlan lookup{.source = input, .cells = slot.width, .dim = spec_.tables[input.table].rows->dim()};
  const std::size_t rows_a_row = input.kind == InputKind::kPooled ? 1 : lookup.cells;
  lookup.rows = add(input.side, rows_a_row * lookup.dim * sizeof(float));
  lookups.push_back(lookup);
  return lookup.rows;
}

void Plan::add_scratch() {
  std::size_t item_cells = 0;
  std::size_t single_cells = 0;
  for (const LookupPlan& lookup : lookups) {
    std::size_t& most = lookup.source.side == Side::kItem ? item_cells : single_cells;
    most = std::max(most, lookup.cells);
  }
  std::size_t dims = 0;
  for (const FeedPlan& feed : feeds) dims += feed.dims.size();
  candidate_ids = add(Side::kItem, sizeof(std::int64_t));
  user_key = add(Side::kUser, sizeof(std::int64_t));
  statuses = add(Side::kItem, item_cells, single_cells);
  feed_list = add(Side::kUser, 0, feeds.size() * sizeof(Feed));
  feed_dims = add(Side::kUser, 0, dims * sizeof(std::int64_t));
  head_list = add(Side::kUser, 0, heads() * sizeof(float*));
  head_scores = add(Side::kItem, sizeof(float));
  for (std::size_t h = 1; h < heads(); ++h) add(Side::kItem, sizeof(float));
  rank_scores = add(Side::kItem, sizeof(double));
  rank_keys = add(Side::kItem, 2 * sizeof(RankKey));
  order = add(Side::kItem, sizeof(std::uint32_t));
  formula_stack = add(Side::kUser, 0, spec_.formula->scratch_values() * sizeof(double));
}

}  // namespace lambda_svc
