#include "lambda_svc/csrc/pipeline.h"

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/stages.h"
#include "lambda_svc/csrc/user_state.h"

namespace lambda_svc {
namespace {

// Stages 4 to 6.
void compute(const Plan& plan, Part part, const RankRequest& request, const Limits& limits, std::uint64_t epoch,
             const Workspace& space, Stopwatch* watch, RankResult* result) {
  gather(plan, part, request, space, result);
  result->times.gather = watch->lap_us();

  limits.check("lookup");
  lookup(plan, part, limits, epoch, space, result);
  result->times.lookup = watch->lap_us();

  run(plan, part, limits, space, result);
  result->times.run = watch->lap_us();
}

}  // namespace

Pipeline::Pipeline(std::shared_ptr<Arena> arena, PlanSpec spec) : arena_(std::move(arena)), plan_(std::move(spec)) {
  if (arena_ == nullptr) throw PlanError("arena", "got none");
}

RankResult Pipeline::rank(const RankRequest& request) const {
  RankResult result;
  result.tables.resize(plan_.spec().tables.size());
  check_request(plan_, request);
  if (request.n() == 0) return result;

  const Limits limits(request.deadline_ns, request.cancelled, request.partial_ns);
  Stopwatch watch;
  limits.check("gather");
  const std::uint64_t epoch = epoch_of(plan_);
  const Workspace space(plan_, *arena_, request.n());
  result.user_state_used = request.user_state != nullptr && request.user_state->fits(plan_, epoch);
  if (result.user_state_used) request.user_state->restore(plan_, space, &result);
  compute(plan_, result.user_state_used ? Part::kBesideState : Part::kWhole, request, limits, epoch, space, &watch,
          &result);

  order(plan_, request, space, &result);
  result.times.topk = watch.lap_us();
  return result;
}

Precomputed Pipeline::precompute(const RankRequest& request) const {
  Precomputed made;
  made.result.tables.resize(plan_.spec().tables.size());
  if (request.n() != 0) throw InvalidRequest("candidate_ids", std::to_string(request.n()) + " candidates", "none");
  const std::vector<Buffer> no_inputs(plan_.spec().formula->inputs().size());
  RankRequest checked = request;
  checked.formula_inputs = no_inputs;
  check_request(plan_, checked);

  const Limits limits(request.deadline_ns, request.cancelled);
  Stopwatch watch;
  limits.check("gather");
  const std::uint64_t epoch = epoch_of(plan_);
  const Workspace space(plan_, *arena_, 0);
  compute(plan_, Part::kUserState, request, limits, epoch, space, &watch, &made.result);
  made.state = std::make_shared<UserState>(plan_, space, epoch, made.result);
  return made;
}

std::uint64_t Pipeline::epoch() const { return epoch_of(plan_); }

}  // namespace lambda_svc
