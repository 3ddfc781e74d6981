#include "lambda_svc/csrc/plan_check.h"

#include <algorithm>

#include "lambda_svc/csrc/errors.h"

namespace lambda_svc {
namespace {

using feature_store::Layout;
using feature_store::SlotSpec;
using Shape = std::vector<std::int64_t>;

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kI64: return "i64";
    case DType::kBytes: return "bytes";
    case DType::kI32: return "i32";
  }
  return "unknown";
}

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::kDense: return "dense";
    case Layout::kRagged: return "ragged";
    case Layout::kPadded: return "padded";
  }
  return "unknown";
}

void want_layout(const std::string& field, const SlotSpec& slot, bool fits, const char* wanted) {
  if (fits) return;
  throw PlanError(field, "slot " + slot.name + " is " + name_of(slot.layout) + "; expected " + wanted);
}

// The shapes the input may have, the first being the natural one; the leading dimension is left out.
std::vector<Shape> shapes_of(const std::string& field, const PlanInput& input, const SlotSpec& slot,
                             std::int64_t dim) {
  const std::int64_t width = slot.width;
  const bool single = slot.layout == Layout::kDense && width == 1;
  switch (input.kind) {
    case InputKind::kValues:
      want_layout(field, slot, slot.layout != Layout::kRagged, "dense or padded for the values themselves");
      if (single) return {{}, {1}};
      return {{width}};
    case InputKind::kLengths:
      want_layout(field, slot, slot.layout == Layout::kPadded, "padded for its lengths");
      return {{}, {1}};
    case InputKind::kRows:
      want_layout(field, slot, slot.layout != Layout::kRagged, "dense or padded for one row an id");
      if (single) return {{dim}, {1, dim}};
      return {{width, dim}};
    case InputKind::kPooled:
      want_layout(field, slot, slot.layout == Layout::kRagged, "ragged for pooled rows");
      return {{dim}, {1, dim}};
  }
  throw PlanError(field, "unknown kind of input");
}

}  // namespace

void check_input(const TensorSpec& tensor, const PlanInput& input, const SlotSpec& slot, std::size_t dim) {
  const std::string field = "input " + tensor.name;
  const bool reads_table = input.kind == InputKind::kRows || input.kind == InputKind::kPooled;
  if (reads_table && slot.dtype != feature_store::DType::kI64) {
    throw PlanError(field, "slot " + slot.name + " is " + name_of(static_cast<DType>(slot.dtype)) +
                               "; expected i64 ids to look rows up by");
  }
  DType dtype = static_cast<DType>(slot.dtype);
  if (reads_table) dtype = DType::kF32;
  if (input.kind == InputKind::kLengths) dtype = DType::kI32;
  if (tensor.dtype != dtype) {
    throw PlanError(field, std::string("the graph wants ") + name_of(tensor.dtype) + ", slot " + slot.name +
                               " gives " + name_of(dtype));
  }
  std::vector<Shape> shapes = shapes_of(field, input, slot, static_cast<std::int64_t>(dim));
  for (Shape& shape : shapes) shape.insert(shape.begin(), input.side == Side::kItem ? -1 : 1);
  if (std::find(shapes.begin(), shapes.end(), tensor.shape) == shapes.end()) {
    throw PlanError(field, "the graph wants shape " + shape_text(tensor.shape) + ", slot " + slot.name + " gives " +
                               shape_text(shapes.front()));
  }
}

Side parse_side(const std::string& text) {
  for (std::size_t i = 0; i < kSides; ++i) {
    if (text == kSideNames[i]) return static_cast<Side>(i);
  }
  throw PlanError("side", "got " + text + "; expected user, context or item");
}

InputKind parse_input_kind(const std::string& text) {
  if (text == "values") return InputKind::kValues;
  if (text == "lengths") return InputKind::kLengths;
  if (text == "rows") return InputKind::kRows;
  if (text == "pooled") return InputKind::kPooled;
  throw PlanError("kind", "got " + text + "; expected values, lengths, rows or pooled");
}

paramserver::Pooling parse_pooling(const std::string& text) {
  if (text == "sum") return paramserver::Pooling::kSum;
  if (text == "mean") return paramserver::Pooling::kMean;
  if (text == "sqrtn") return paramserver::Pooling::kSqrtN;
  throw PlanError("pooling", "got " + text + "; expected sum, mean or sqrtn");
}

}  // namespace lambda_svc
