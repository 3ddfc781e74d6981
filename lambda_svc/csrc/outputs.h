// What executables share on the way out: does a graph's output fit the signature, and did a run give all its values?
//
// Thread-safety: functions of their arguments only.
#pragma once

#include <cstddef>
#include <string>

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/executable.h"

namespace lambda_svc {

// Throws EngineError when an output that the graph has as `sizes` (-1: open) cannot be taken as `spec`. A score a row,
// shape [-1], may come as a column.
inline void check_output_shape(const TensorSpec& spec, const std::vector<std::int64_t>& sizes) {
  const bool score = spec.shape.size() == 1 && spec.shape[0] < 0;
  std::vector<std::int64_t> have = sizes;
  if (score && have.size() == 2 && (have[1] == 1 || have[1] < 0)) have.pop_back();
  bool fits = have.size() == spec.shape.size();
  for (std::size_t d = 0; fits && d < have.size(); ++d) {
    fits = have[d] < 0 || spec.shape[d] < 0 || have[d] == spec.shape[d];
  }
  if (fits) return;
  throw EngineError("output " + spec.name + ": the graph has shape " + shape_text(sizes) + "; expected " +
                    (score ? "[n] or [n,1]" : shape_text(spec.shape)));
}

// Throws EngineError when a run with `rows` candidates gave another number of values than the output has.
inline void check_values(const TensorSpec& spec, std::size_t values, std::size_t rows) {
  if (values == values_of(spec, rows)) return;
  const bool score = spec.shape.size() == 1 && spec.shape[0] < 0;
  throw EngineError("output " + spec.name + ": got " + std::to_string(values) + " values; expected " +
                    (score ? "one for each of " + std::to_string(rows) + " rows"
                           : std::to_string(values_of(spec, rows)) + " for " + std::to_string(rows) + " rows"));
}

}  // namespace lambda_svc
