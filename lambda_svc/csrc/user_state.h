// What the user side of a request comes to, kept beyond it: the values that the items' graph is fed from the user side,
// whether a graph of the user computed them or not, and what was counted while they were made. Copied out of the arena.
//
//   | values of the first of plan.user_values | of the second | ...        each bytes_per_row long, end to end
//
// A request with a state gathers, looks up and runs nothing that only these values need.
//
// Thread-safety: immutable. Ownership: owns its values; knows its graphs only weakly, so that a state never keeps the
// version of a model that it was computed by.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lambda_svc/csrc/plan.h"
#include "lambda_svc/csrc/request.h"
#include "lambda_svc/csrc/workspace.h"

namespace lambda_svc {

class UserState {
 public:
  // Copies the values of a workspace whose user side is computed, as of `epoch`, and what `made` counted.
  UserState(const Plan& plan, const Workspace& space, std::uint64_t epoch, const RankResult& made);

  // Whether a request of this plan, at this epoch, may use it: the same graphs, layout and state of the tables.
  bool fits(const Plan& plan, std::uint64_t epoch) const;
  // Writes the values where the items' graph reads them, and its counts to the result. The plan must be one it fits.
  void restore(const Plan& plan, const Workspace& space, RankResult* result) const;

  std::uint64_t epoch() const { return epoch_; }
  // Memory that it takes.
  std::size_t bytes() const;

 private:
  std::weak_ptr<const Executable> items_, user_;
  std::uint64_t epoch_;
  std::vector<std::byte> values_;
  feature_store::GatherStats features_;
  std::vector<std::array<std::uint64_t, paramserver::kRowStatuses>> tables_;
  bool unknown_user_;
};

}  // namespace lambda_svc
