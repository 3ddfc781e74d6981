#include "lambda_svc/csrc/pipeline.h"

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/stages.h"

namespace lambda_svc {

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
  const Workspace space(plan_, *arena_, request.n());
  gather(plan_, request, space, &result);
  result.times.gather = watch.lap_us();

  limits.check("lookup");
  lookup(plan_, limits, space, &result);
  result.times.lookup = watch.lap_us();

  run(plan_, limits, space, &result);
  result.times.run = watch.lap_us();

  order(plan_, request, space, &result);
  result.times.topk = watch.lap_us();
  return result;
}

}  // namespace lambda_svc
