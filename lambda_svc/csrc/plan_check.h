// Does what a plan feeds to an input of the graph have the dtype and shape that the graph wants?
//
// Thread-safety: a function of its arguments only.
#pragma once

#include <cstddef>

#include "lambda_svc/csrc/plan.h"

namespace lambda_svc {

// `dim` is the table's row width for inputs that read a table. Throws PlanError naming the input.
void check_input(const TensorSpec& tensor, const PlanInput& input, const feature_store::SlotSpec& slot,
                 std::size_t dim);

}  // namespace lambda_svc
