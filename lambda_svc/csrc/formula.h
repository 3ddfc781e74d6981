// The rank formula: arithmetic over head names, constants and per-candidate inputs, parsed and checked once, then
// evaluated in float64 a block of candidates at a time.
//
//   sum     = product { ("+" | "-") product }
//   product = unary { ("*" | "/") unary }
//   unary   = "-" unary | NUMBER | NAME | FUNCTION "(" sum { "," sum } ")" | "(" sum ")"
//   FUNCTION: exp(x) log(x) pow(x, y) min(x, y, ...) max(x, y, ...) clip(x, low, high)
//
// IEEE rules throughout: log(-1) is NaN, 1 / 0 is infinite. min, max and clip of a NaN are NaN, so that a broken score
// is flagged and never hidden; so are pow(NaN, 0) and pow(1, NaN).
//
// Thread-safety: immutable after construction. Ownership: evaluate() writes only to the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lambda_svc {

class Formula {
 public:
  static constexpr std::size_t kBytesMax = 4096;  // length of the text
  static constexpr int kDepthMax = 64;            // nested parentheses, calls and minuses
  static constexpr std::size_t kBlock = 256;      // candidates evaluated together, inside the first-level cache

  // Throws FormulaError with the position and what was expected there.
  Formula(std::string text, std::vector<std::string> heads, std::vector<std::string> inputs);

  // `heads` are float32 [n] each; `inputs` are float32 [n] each and need not be aligned; out[i] is the rank score.
  void evaluate(const float* const* heads, const void* const* inputs, std::size_t n, double* out /*[n]*/,
                double* scratch /*[scratch_values()]*/) const;
  std::size_t scratch_values() const { return stack_depth_ * kBlock; }

  const std::string& text() const { return text_; }
  const std::vector<std::string>& heads() const { return heads_; }
  const std::vector<std::string>& inputs() const { return inputs_; }

 private:
  friend class FormulaParser;
  enum class Op : std::uint8_t { kConstant, kHead, kInput, kNegate, kAdd, kSubtract, kMultiply, kDivide,
                                 kPow, kExp, kLog, kMin, kMax, kClip };
  struct Step {
    Op op;
    std::uint32_t index;  // of the head or input
    double constant;
  };
  void push(const Step& step, const float* const* heads, const void* const* inputs, std::size_t first,
            std::size_t rows, double* top) const;

  std::string text_;
  std::vector<std::string> heads_;
  std::vector<std::string> inputs_;
  std::vector<Step> steps_;  // postfix
  std::size_t stack_depth_ = 0;
};

}  // namespace lambda_svc
