#include "lambda_svc/csrc/request.h"

#include <cstring>

#include "lambda_svc/csrc/errors.h"

namespace lambda_svc {
namespace {

using feature_store::FeatureSpec;
using feature_store::Layout;

std::string count(std::size_t value, const char* unit) { return std::to_string(value) + " " + unit; }

std::int32_t offset_at(const Buffer& offsets, std::size_t i) {
  std::int32_t value;
  std::memcpy(&value, static_cast<const std::byte*>(offsets.data) + i * sizeof value, sizeof value);
  return value;
}

// Offsets [entries + 1] that start at 0, never descend, step by at most `step_max`; returns the last.
std::size_t check_offsets(const std::string& field, const Buffer& offsets, std::size_t entries,
                          std::size_t step_max) {
  const std::size_t wanted = (entries + 1) * sizeof(std::int32_t);
  if (offsets.data == nullptr || offsets.bytes != wanted) {
    throw InvalidRequest(field, count(offsets.bytes, "bytes"), count(wanted, "bytes, int32 [") +
                                                                   std::to_string(entries + 1) + "]");
  }
  std::int32_t last = offset_at(offsets, 0);
  if (last != 0) throw InvalidRequest(field, "a first offset of " + std::to_string(last), "0");
  for (std::size_t i = 1; i <= entries; ++i) {
    const std::int32_t next = offset_at(offsets, i);
    if (next < last || static_cast<std::size_t>(next - last) > step_max) {
      throw InvalidRequest(field, "offset " + std::to_string(next) + " after " + std::to_string(last) + " at " +
                                      std::to_string(i),
                           "offsets that ascend by 0 to " + std::to_string(step_max));
    }
    last = next;
  }
  return static_cast<std::size_t>(last);
}

void check_column(const FeatureSpec& spec, const RequestColumn& column, std::size_t rows) {
  const std::string field = std::string(kSideNames[static_cast<int>(column.side)]) + "_columns[" + spec.name + "]";
  std::size_t values = rows * spec.width;
  if (spec.layout == Layout::kRagged) {
    values = check_offsets(field + ".row_offsets", column.row_offsets, rows, spec.width);
  }
  std::size_t bytes = values * (spec.dtype == feature_store::DType::kI64 ? 8 : 4);
  if (spec.dtype == feature_store::DType::kBytes) {
    bytes = check_offsets(field + ".byte_offsets", column.byte_offsets, values, column.values.bytes);
  }
  if (column.values.bytes != bytes) {
    throw InvalidRequest(field, count(column.values.bytes, "bytes of values"), count(bytes, "bytes"));
  }
}

}  // namespace

void check_request(const Plan& plan, const RankRequest& request) {
  if (request.candidate_ids.bytes % sizeof(std::int64_t) != 0) {
    throw InvalidRequest("candidate_ids", count(request.candidate_ids.bytes, "bytes"), "a multiple of 8, int64 ids");
  }
  const std::size_t n = request.n();
  if (n > plan.candidates_max()) {
    throw InvalidRequest("candidate_ids", count(n, "candidates"),
                         "at most " + std::to_string(plan.candidates_max()) + " for this plan");
  }
  for (const RequestColumn& column : request.columns) {
    const feature_store::FeatureSource* source = plan.source(column.side);
    const std::size_t features = source == nullptr ? 0 : source->features().size();
    if (column.feature >= features) {
      throw InvalidRequest(std::string(kSideNames[static_cast<int>(column.side)]) + "_columns",
                           "feature " + std::to_string(column.feature), "one of " + std::to_string(features));
    }
    check_column(source->features()[column.feature], column, column.side == Side::kItem ? n : 1);
  }
  const std::vector<std::string>& names = plan.spec().formula->inputs();
  if (request.formula_inputs.size() != names.size()) {
    throw InvalidRequest("formula_inputs", count(request.formula_inputs.size(), "columns"),
                         count(names.size(), "columns"));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (request.formula_inputs[i].bytes == n * sizeof(float)) continue;
    throw InvalidRequest("formula_inputs[" + names[i] + "]", count(request.formula_inputs[i].bytes, "bytes"),
                         count(n * sizeof(float), "bytes, float32 [") + std::to_string(n) + "]");
  }
}

std::vector<Coverage> coverage_of(const Plan& plan, const RankResult& result) {
  std::vector<Coverage> lines;
  for (std::size_t side = 0; side < kSides; ++side) {
    if (plan.spec().sources[side] == nullptr) continue;
    lines.push_back({kSideNames[side], result.features[side].cells, result.features[side].cells_present});
  }
  for (std::size_t table = 0; table < plan.spec().tables.size(); ++table) {
    const auto& by_status = result.tables[table];
    std::uint64_t asked = 0;
    for (const std::uint64_t ids : by_status) asked += ids;
    lines.push_back({"table/" + plan.spec().tables[table].name, asked,
                     by_status[static_cast<int>(paramserver::RowStatus::kHit)] +
                         by_status[static_cast<int>(paramserver::RowStatus::kCold)]});
  }
  return lines;
}

}  // namespace lambda_svc
