// Stages 4 to 7 of a request, one file each; pipeline.cc calls them in order.
//
// Thread-safety: each works on one request's workspace and result; the plan is shared and only read.
#pragma once

#include "lambda_svc/csrc/limits.h"
#include "lambda_svc/csrc/plan.h"
#include "lambda_svc/csrc/request.h"
#include "lambda_svc/csrc/workspace.h"

namespace lambda_svc {

// gather.cc: writes every slot of the part's sides; fills features and the unknown counts.
void gather(const Plan& plan, Part part, const RankRequest& request, const Workspace& space, RankResult* result);

// lookup.cc: the epoch of the request: taken once, so that all its rows are of one published state. 0: tables have one.
std::uint64_t epoch_of(const Plan& plan);

// lookup.cc: writes (pooled) rows where the graph reads them; fills tables, where a state does not count what is looked
// up beside it as well. Rows of user and context are looked up once a request, whatever the number of candidates.
void lookup(const Plan& plan, Part part, const Limits& limits, std::uint64_t epoch, const Workspace& space,
            RankResult* result);

// run.cc: runs the graph slice by slice on the workspace; fills slices, scored, missing and bytes_copied. Throws
// DeadlineExceeded or Cancelled before a slice, EngineError. A request that takes part of its candidates ends with
// what is scored where the next slice, as long as the longest so far, would be late; the first one is not guessed at.
// Beside a state the user's graph does not run, and of a state nothing else does.
void run(const Plan& plan, Part part, const Limits& limits, const Workspace& space, RankResult* result);

// order.cc: rank scores of what was scored, the best k of them, and their copies into the result's own arrays.
void order(const Plan& plan, const RankRequest& request, const Workspace& space, RankResult* result);

}  // namespace lambda_svc
