#include "lambda_svc/csrc/formula.h"

#include <cmath>
#include <cstring>

#include "lambda_svc/csrc/formula_parser.h"

namespace lambda_svc {
namespace {

template <class F>
void unary(double* x, std::size_t rows, F f) {
  for (std::size_t i = 0; i < rows; ++i) x[i] = f(x[i]);
}

template <class F>
void binary(double* x, const double* y, std::size_t rows, F f) {
  for (std::size_t i = 0; i < rows; ++i) x[i] = f(x[i], y[i]);
}

// Written so that a NaN on either side comes through.
double smaller(double x, double y) { return std::isnan(x) || x < y ? x : y; }
double larger(double x, double y) { return std::isnan(x) || x > y ? x : y; }
// IEEE has pow(NaN, 0) and pow(1, NaN) as 1, which would pass a broken score off as a good one.
double power(double x, double y) { return std::isnan(x) || std::isnan(y) ? x + y : std::pow(x, y); }

}  // namespace

Formula::Formula(std::string text, std::vector<std::string> heads, std::vector<std::string> inputs)
    : text_(std::move(text)), heads_(std::move(heads)), inputs_(std::move(inputs)) {
  FormulaParser(*this).parse();
}

void Formula::push(const Step& step, const float* const* heads, const void* const* inputs, std::size_t first,
                   std::size_t rows, double* top) const {
  if (step.op == Op::kConstant) {
    for (std::size_t i = 0; i < rows; ++i) top[i] = step.constant;
  } else if (step.op == Op::kHead) {
    const float* head = heads[step.index] + first;
    for (std::size_t i = 0; i < rows; ++i) top[i] = head[i];
  } else {
    const auto* input = static_cast<const std::byte*>(inputs[step.index]) + first * sizeof(float);
    for (std::size_t i = 0; i < rows; ++i) {
      float value;
      std::memcpy(&value, input + i * sizeof(float), sizeof value);
      top[i] = value;
    }
  }
}

void Formula::evaluate(const float* const* heads, const void* const* inputs, std::size_t n, double* out,
                       double* scratch) const {
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t rows = n - first < kBlock ? n - first : kBlock;
    double* next = scratch;  // where the next value of the stack goes
    for (const Step& step : steps_) {
      double* x = next - kBlock;          // the last value
      double* under = next - 2 * kBlock;  // the one below it
      switch (step.op) {
        case Op::kConstant:
        case Op::kHead:
        case Op::kInput:
          push(step, heads, inputs, first, rows, next);
          next += kBlock;
          continue;
        case Op::kNegate: unary(x, rows, [](double v) { return -v; }); continue;
        case Op::kExp: unary(x, rows, [](double v) { return std::exp(v); }); continue;
        case Op::kLog: unary(x, rows, [](double v) { return std::log(v); }); continue;
        case Op::kAdd: binary(under, x, rows, [](double a, double b) { return a + b; }); break;
        case Op::kSubtract: binary(under, x, rows, [](double a, double b) { return a - b; }); break;
        case Op::kMultiply: binary(under, x, rows, [](double a, double b) { return a * b; }); break;
        case Op::kDivide: binary(under, x, rows, [](double a, double b) { return a / b; }); break;
        case Op::kPow: binary(under, x, rows, power); break;
        case Op::kMin: binary(under, x, rows, smaller); break;
        case Op::kMax: binary(under, x, rows, larger); break;
        case Op::kClip: {
          double* value = next - 3 * kBlock;
          binary(value, under, rows, larger);
          binary(value, x, rows, smaller);
          next -= kBlock;
          break;
        }
      }
      next -= kBlock;
    }
    std::memcpy(out + first, scratch, rows * sizeof(double));
  }
}

}  // namespace lambda_svc
