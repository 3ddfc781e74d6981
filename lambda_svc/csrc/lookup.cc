#include <algorithm>
#include <cstring>
#include <vector>

#include "lambda_svc/csrc/stages.h"

namespace lambda_svc {
namespace {

using paramserver::RowStatus;
using paramserver::RowType;

struct Reader {
  const Plan& plan;
  const Workspace& space;
  const LookupPlan& lookup;
  paramserver::LookupContext context;

  const paramserver::RowSource& table() const { return *plan.spec().tables[lookup.source.table].rows; }
  const SlotRegions& slot() const { return plan.side(lookup.source.side).slots[lookup.source.slot]; }
  const std::int64_t* ids() const { return space.at<std::int64_t>(slot().values); }
  float* rows() const { return space.at<float>(lookup.rows); }
  RowStatus* statuses() const { return space.at<RowStatus>(plan.statuses); }
  std::size_t slot_rows() const { return space.rows(lookup.source.side); }

  // Every lookup returns how many statuses it wrote.
  std::size_t dense() const {
    const std::size_t n = slot_rows() * lookup.cells;
    table().lookup(context, ids(), n, RowType::kF32, rows(), statuses());
    return n;
  }

  std::size_t pooled() const {
    const auto* offsets = space.at<std::int32_t>(slot().offsets);
    const std::size_t bags = slot_rows();
    table().lookup_pooled(context, ids(), offsets, bags, lookup.source.pooling, nullptr, RowType::kF32,
                          rows(), statuses());
    return static_cast<std::size_t>(offsets[bags]);
  }

  // Only cells up to the length are ids. Full rows join the row after them, so that well-filled slots are looked up
  // in few, long batches.
  std::size_t padded() const {
    const auto* lengths = space.at<std::int32_t>(slot().lengths);
    const std::size_t all = slot_rows() * lookup.cells;
    std::size_t asked = 0;
    std::size_t first = 0;  // the first cell not looked up yet
    for (std::size_t row = 0; row < slot_rows(); ++row) {
      const std::size_t next_row = (row + 1) * lookup.cells;
      const std::size_t last = row * lookup.cells + static_cast<std::size_t>(lengths[row]);
      if (last == next_row && next_row != all) continue;
      if (last > first) {
        table().lookup(context, ids() + first, last - first, RowType::kF32,
                       rows() + first * lookup.dim, statuses() + asked);
      }
      std::memset(rows() + last * lookup.dim, 0, (next_row - last) * lookup.dim * sizeof(float));
      asked += last - first;
      first = next_row;
    }
    return asked;
  }

  // The same in one lookup, for tables that a lookup is a message to.
  std::size_t padded_at_once() const {
    const auto* lengths = space.at<std::int32_t>(slot().lengths);
    std::vector<std::int64_t> asked;
    for (std::size_t row = 0; row < slot_rows(); ++row) {
      const std::int64_t* first = ids() + row * lookup.cells;
      asked.insert(asked.end(), first, first + lengths[row]);
    }
    std::vector<float> found(asked.size() * lookup.dim);
    table().lookup(context, asked.data(), asked.size(), RowType::kF32, found.data(), statuses());
    const float* from = found.data();
    for (std::size_t row = 0; row < slot_rows(); ++row) {
      const std::size_t filled = static_cast<std::size_t>(lengths[row]) * lookup.dim;
      float* to = rows() + row * lookup.cells * lookup.dim;
      std::copy_n(from, filled, to);
      std::fill(to + filled, to + lookup.cells * lookup.dim, 0.0f);
      from += filled;
    }
    return asked.size();
  }
};

void count(const LookupPlan& entry, Part part, const std::array<std::uint64_t, paramserver::kRowStatuses>& by_status,
           RankResult* result) {
  result->ids_unanswered += by_status[static_cast<int>(RowStatus::kUnavailable)];
  result->ids_unanswered += by_status[static_cast<int>(RowStatus::kDeadline)];
  if (part == Part::kUserState && entry.beside_state) return;
  auto& of_table = result->tables[entry.source.table];
  for (std::size_t i = 0; i < by_status.size(); ++i) of_table[i] += by_status[i];
}

bool belongs(const LookupPlan& entry, Part part) {
  if (part == Part::kWhole) return true;
  return part == Part::kUserState ? entry.for_user_state : entry.beside_state;
}

}  // namespace

std::uint64_t epoch_of(const Plan& plan) {
  for (const NamedTable& table : plan.spec().tables) {
    if (const std::uint64_t epoch = table.rows->epoch(); epoch != 0) return epoch;
  }
  return 0;
}

void lookup(const Plan& plan, Part part, const Limits& limits, std::uint64_t epoch, const Workspace& space,
            RankResult* result) {
  for (const LookupPlan& entry : plan.lookups) {
    if (!belongs(entry, part)) continue;
    limits.check("lookup");
    Reader reader{plan, space, entry, limits.lookup_context()};
    // A table of one state has no epochs to choose from.
    const bool epochs = reader.table().epoch() != 0;
    if (epochs) reader.context.epoch = epoch;
    const auto layout = plan.source(entry.source.side)->slots()[entry.source.slot].layout;
    std::size_t asked = 0;
    switch (layout) {
      case feature_store::Layout::kDense: asked = reader.dense(); break;
      case feature_store::Layout::kRagged: asked = reader.pooled(); break;
      case feature_store::Layout::kPadded: asked = epochs ? reader.padded_at_once() : reader.padded(); break;
    }
    std::array<std::uint64_t, paramserver::kRowStatuses> by_status{};
    const auto* statuses = space.at<std::uint8_t>(plan.statuses);
    for (std::size_t i = 0; i < asked; ++i) by_status[statuses[i]] += 1;
    count(entry, part, by_status, result);
  }
}

}  // namespace lambda_svc
