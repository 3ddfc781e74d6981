// The plan: everything about a request that can be decided at load. Built once from what Python validated, checked
// here against the graph, the slots and the tables, then only read.
//
// Thread-safety: immutable after construction. Ownership: keeps engine, feature sources, tables and formula alive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "feature_store/csrc/feature_source.h"
#include "lambda_svc/csrc/executable.h"
#include "lambda_svc/csrc/formula.h"
#include "paramserver/csrc/row_source.h"

namespace lambda_svc {

// User and context have one row a request, item has one a candidate.
enum class Side : std::uint8_t { kUser = 0, kContext = 1, kItem = 2 };
inline constexpr std::size_t kSides = 3;
inline constexpr std::array<const char*, kSides> kSideNames{"user", "context", "item"};

enum class InputKind : std::uint8_t {
  kValues = 0,   // a dense or padded slot's values as they are
  kLengths = 1,  // a padded slot's lengths, int32 [rows]
  kRows = 2,     // a table's row for every id of a dense or padded slot; cells past the length are zero
  kPooled = 3,   // a ragged slot's ids pooled, [rows, dim]
};

// What feeds one input of the graph.
struct PlanInput {
  Side side;
  InputKind kind;
  std::uint32_t slot;    // index among the side's slots
  std::int32_t table;    // index among the tables; ignored unless kind is kRows or kPooled
  paramserver::Pooling pooling;
};

struct NamedTable {
  std::string name;
  std::shared_ptr<const paramserver::RowSource> rows;
};

struct PlanSpec {
  std::shared_ptr<const Executable> executable;
  std::array<std::shared_ptr<const feature_store::FeatureSource>, kSides> sources;  // null: the side has no slots
  // Whether the side's source stores features by key. Without, a request brings them, and no key can be unknown.
  std::array<bool, kSides> cached{true, false, true};
  std::vector<NamedTable> tables;
  std::vector<PlanInput> inputs;  // in the executable's order, those that `user` gives at the end left out
  std::shared_ptr<const Executable> user;  // null: nothing is computed apart; else run once, before the slices
  std::vector<PlanInput> user_inputs;      // in its order; of the user and context sides
  std::shared_ptr<const Formula> formula;
  std::size_t slice_rows = 0;  // a multiple of kSliceMultiple; 0: one slice whatever the number of candidates
};

// A piece of a request's block: bytes_fixed + bytes_per_row for each of the side's rows, from a 64-byte boundary on.
struct Region {
  Side rows_of;
  std::size_t bytes_per_row;
  std::size_t bytes_fixed;
};
using RegionIndex = std::uint32_t;

struct SlotRegions {
  RegionIndex values = 0;
  RegionIndex offsets = 0;  // ragged slots only
  RegionIndex lengths = 0;  // padded slots only
};

struct SidePlan {
  std::vector<SlotRegions> slots;
  RegionIndex known = 0;  // cached sides only
  RegionIndex slot_outs = 0;
  RegionIndex columns = 0;
};

// Rows of one table for one slot; several inputs may share it.
struct LookupPlan {
  PlanInput source;
  std::size_t cells = 0;  // ids a row: the slot's width
  std::size_t dim = 0;
  RegionIndex rows = 0;
  bool for_user_state = false;  // needed for what a user state holds
  bool beside_state = false;    // needed, too, where there is a state
};

// Which part of a request a stage works on: all of it, what a user state is made of, or what is left beside one.
enum class Part : std::uint8_t { kWhole, kUserState, kBesideState };

struct FeedPlan {
  Side side;
  RegionIndex region = 0;
  std::size_t bytes_per_row = 0;
  std::vector<std::int64_t> dims;  // dims[0] is replaced by the slice's rows for the item side
};

class Plan {
 public:
  // Throws PlanError naming the input or part that does not fit.
  explicit Plan(PlanSpec spec);

  const PlanSpec& spec() const { return spec_; }
  const feature_store::FeatureSource* source(Side side) const { return spec_.sources[static_cast<int>(side)].get(); }
  const SidePlan& side(Side side) const { return sides_[static_cast<int>(side)]; }
  // Whether a key of this side can be unknown.
  bool cached(Side side) const { return source(side) != nullptr && spec_.cached[static_cast<int>(side)]; }
  // Whether all heads come as the rows of one output, [heads, -1].
  bool packed() const { return spec_.executable->outputs()[0].shape.size() == 2; }
  std::size_t heads() const {
    const std::vector<TensorSpec>& outputs = spec_.executable->outputs();
    return packed() ? static_cast<std::size_t>(outputs[0].shape[0]) : outputs.size();
  }
  // The most candidates a request may have: int32 offsets of ragged slots must reach.
  std::size_t candidates_max() const { return candidates_max_; }

  std::vector<Region> regions;
  std::vector<LookupPlan> lookups;
  std::vector<FeedPlan> feeds;       // of the executable, what `user` gives included
  std::vector<FeedPlan> user_feeds;  // of the user's executable
  std::vector<FeedPlan> user_values;  // those of `feeds` that a user state holds: of the user side, `user`'s included
  bool user_reads_context = false;   // whether they depend on the context side
  RegionIndex candidate_ids = 0;
  RegionIndex user_key = 0;
  RegionIndex statuses = 0;
  RegionIndex feed_list = 0;   // Feed [inputs], of whichever executable has more
  RegionIndex feed_dims = 0;   // int64, every feed's dims end to end
  RegionIndex shared = 0;      // the first of the regions that the user's executable writes its outputs to
  RegionIndex shared_list = 0;  // float* [outputs of the user's executable]
  RegionIndex packed_heads = 0;  // float32 [heads, n], when heads come packed
  RegionIndex head_list = 0;   // float* [heads], where a slice's scores go
  RegionIndex head_scores = 0;  // the first of heads() regions, float32 [n]
  RegionIndex rank_scores = 0;
  RegionIndex rank_keys = 0;
  RegionIndex order = 0;
  RegionIndex formula_stack = 0;

 private:
  RegionIndex add(Side rows_of, std::size_t bytes_per_row, std::size_t bytes_fixed = 0);
  void add_sides();
  void add_shared();
  FeedPlan feed_of(const PlanInput& input, const TensorSpec& tensor, Part part);
  const feature_store::SlotSpec& slot_of(const PlanInput& input, const std::string& name) const;
  RegionIndex add_lookup(const PlanInput& input, const feature_store::SlotSpec& slot, Part part);
  void add_scratch();
  void check_whole() const;
  void check_user() const;

  PlanSpec spec_;
  std::array<SidePlan, kSides> sides_;
  std::size_t candidates_max_ = std::size_t{1} << 26;
};

// Names as the manifest has them; throw PlanError naming `field`.
Side parse_side(const std::string& text);
InputKind parse_input_kind(const std::string& text);
paramserver::Pooling parse_pooling(const std::string& text);

}  // namespace lambda_svc
