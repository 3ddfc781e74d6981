// A ranking request in one native call: gather, lookup, run and order over a plan, on memory leased from the arena.
//
// Thread-safety: rank() may be called from any number of threads at once.
// Ownership: keeps plan and arena alive; the result owns its arrays.
#pragma once

#include <memory>

#include "lambda_svc/csrc/arena.h"
#include "lambda_svc/csrc/plan.h"
#include "lambda_svc/csrc/request.h"
#include "lambda_svc/csrc/user_state.h"

namespace lambda_svc {

// A user state, and coverage, unanswered ids, copied bytes and times of making it. ids_unanswered above 0: it was made
// of default rows for ids that a table would have known, and is not one to keep.
struct Precomputed {
  std::shared_ptr<UserState> state;
  RankResult result;
};

class Pipeline {
 public:
  Pipeline(std::shared_ptr<Arena> arena, PlanSpec spec);  // throws PlanError

  // Scores every candidate and returns the best. No candidates: an empty result, and the engine is not asked.
  // Throws InvalidRequest, ArenaExhausted, DeadlineExceeded, Cancelled, EngineError; then nothing is returned. A
  // request with partial_ns gets the best of those scored by then instead of DeadlineExceeded, if there are any.
  RankResult rank(const RankRequest& request) const;

  // The user side alone, from a request without candidates. Throws as rank() does.
  Precomputed precompute(const RankRequest& request) const;

  // The epoch that a request beginning now reads its tables at; 0 where they have one state.
  std::uint64_t epoch() const;

  const Plan& plan() const { return plan_; }

 private:
  const std::shared_ptr<Arena> arena_;
  const Plan plan_;
};

}  // namespace lambda_svc
