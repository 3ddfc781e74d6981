#include "lambda_svc/csrc/formula_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include "lambda_svc/csrc/errors.h"

namespace lambda_svc {
namespace {

struct Function {
  std::string_view name;
  std::size_t arguments_min;
  std::size_t arguments_max;
};
constexpr std::size_t kMany = 256;
constexpr std::array<Function, 6> kFunctions{
    {{"exp", 1, 1}, {"log", 1, 1}, {"pow", 2, 2}, {"min", 2, kMany}, {"max", 2, kMany}, {"clip", 3, 3}}};

// Not <cctype>: the formula language does not depend on the locale.
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

}  // namespace

class FormulaParser::Nested {
 public:
  explicit Nested(FormulaParser& parser) : parser_(parser) {
    if (++parser_.depth_ > Formula::kDepthMax) {
      parser_.fail(parser_.at_, "nested deeper than " + std::to_string(Formula::kDepthMax) +
                                    " levels; expected a flatter formula");
    }
  }
  ~Nested() { --parser_.depth_; }

 private:
  FormulaParser& parser_;
};

void FormulaParser::parse() {
  if (text_.size() > Formula::kBytesMax) {
    fail(Formula::kBytesMax, "got " + std::to_string(text_.size()) + " bytes; expected at most " +
                                 std::to_string(Formula::kBytesMax));
  }
  declare(formula_.heads_, "head");
  declare(formula_.inputs_, "input");
  sum();
  if (peek() != '\0' || at_ < text_.size()) fail(at_, "expected an operator or the end, got " + seen(at_));
}

void FormulaParser::declare(const std::vector<std::string>& names, const char* what) const {
  const std::vector<std::string>& heads = formula_.heads_;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const bool word = !name.empty() && is_letter(name[0]) &&
                      std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || is_digit(c); });
    if (!word) fail(0, std::string(what) + " \"" + name + "\" cannot be named; expected letters, digits and _");
    const bool twice = std::find(names.begin(), names.begin() + i, name) != names.begin() + i;
    const bool also_head = &names != &heads && std::find(heads.begin(), heads.end(), name) != heads.end();
    if (twice || also_head) fail(0, std::string(what) + " " + name + " is declared twice; expected distinct names");
  }
}

void FormulaParser::sum() {
  product();
  for (;;) {
    const Op op = peek() == '+' ? Op::kAdd : Op::kSubtract;
    if (!take('+') && !take('-')) return;
    product();
    emit(op);
  }
}

void FormulaParser::product() {
  unary();
  for (;;) {
    const Op op = peek() == '*' ? Op::kMultiply : Op::kDivide;
    if (!take('*') && !take('/')) return;
    unary();
    emit(op);
  }
}

void FormulaParser::unary() {
  const Nested nested(*this);
  const char next = peek();
  if (take('-')) {
    unary();
    emit(Op::kNegate);
  } else if (take('(')) {
    sum();
    expect(')');
  } else if (is_digit(next) || next == '.') {
    number();
  } else if (is_letter(next)) {
    name();
  } else {
    fail(at_, "expected a number, a name, a function or \"(\", got " + seen(at_));
  }
}

void FormulaParser::number() {
  double value = 0;
  const char* first = text_.data() + at_;
  const auto parsed = std::from_chars(first, text_.data() + text_.size(), value);
  if (parsed.ec != std::errc() || !std::isfinite(value)) fail(at_, "expected a number within float64's range");
  const std::size_t start = at_;
  at_ += static_cast<std::size_t>(parsed.ptr - first);
  if (at_ < text_.size() && (is_letter(text_[at_]) || text_[at_] == '.')) {
    fail(start, "expected a number such as 0.7 or 1e-3, got " + seen(start));
  }
  emit(Op::kConstant, 0, value);
}

void FormulaParser::name() {
  const std::size_t start = at_;
  while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
  const std::string_view word = text_.substr(start, at_ - start);
  if (peek() == '(') {
    call(word, start);
  } else {
    variable(word, start);
  }
}

void FormulaParser::call(std::string_view word, std::size_t start) {
  const auto* function = std::find_if(kFunctions.begin(), kFunctions.end(),
                                      [word](const Function& candidate) { return candidate.name == word; });
  if (function == kFunctions.end()) {
    fail(start, "no function is called " + std::string(word) + "; expected exp, log, pow, min, max or clip");
  }
  const bool folds = word == "min" || word == "max";
  const Op fold = word == "min" ? Op::kMin : Op::kMax;
  expect('(');
  std::size_t arguments = 0;
  do {
    sum();
    if (folds && arguments > 0) emit(fold);
    ++arguments;
  } while (take(','));
  expect(')');
  if (arguments < function->arguments_min || arguments > function->arguments_max) {
    const std::string wanted = std::to_string(function->arguments_min) + (folds ? " or more" : "");
    fail(start, std::string(word) + " takes " + wanted + " arguments, got " + std::to_string(arguments));
  }
  if (word == "exp") emit(Op::kExp);
  if (word == "log") emit(Op::kLog);
  if (word == "pow") emit(Op::kPow);
  if (word == "clip") emit(Op::kClip);
}

void FormulaParser::variable(std::string_view word, std::size_t start) {
  const auto find = [word](const std::vector<std::string>& names) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), word) - names.begin());
  };
  const std::size_t head = find(formula_.heads_);
  const std::size_t input = find(formula_.inputs_);
  if (head < formula_.heads_.size()) {
    emit(Op::kHead, static_cast<std::uint32_t>(head));
  } else if (input < formula_.inputs_.size()) {
    emit(Op::kInput, static_cast<std::uint32_t>(input));
  } else {
    fail(start, "nothing is called " + std::string(word) + suggestion(word) + "; heads: " + joined(formula_.heads_) +
                    "; inputs: " + joined(formula_.inputs_));
  }
}

void FormulaParser::emit(Op op, std::uint32_t index, double constant) {
  switch (op) {
    case Op::kConstant:
    case Op::kHead:
    case Op::kInput: ++stack_; break;
    case Op::kNegate:
    case Op::kExp:
    case Op::kLog: break;
    case Op::kClip: stack_ -= 2; break;
    default: --stack_; break;
  }
  formula_.stack_depth_ = std::max(formula_.stack_depth_, stack_);
  formula_.steps_.push_back({op, index, constant});
}

char FormulaParser::peek() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool FormulaParser::take(char wanted) {
  if (peek() != wanted) return false;
  ++at_;
  return true;
}

void FormulaParser::expect(char wanted) {
  if (!take(wanted)) fail(at_, std::string("expected \"") + wanted + "\", got " + seen(at_));
}

void FormulaParser::fail(std::size_t position, const std::string& what) const {
  throw FormulaError(position, "formula, position " + std::to_string(position) + ": " + what);
}

// Only printable ASCII is quoted: the text may be anything, a message must be valid UTF-8.
std::string FormulaParser::seen(std::size_t position) const {
  if (position >= text_.size()) return "the end";
  const auto byte = static_cast<unsigned char>(text_[position]);
  if (byte < 0x20 || byte > 0x7e) return "byte " + std::to_string(byte);
  return std::string("\"") + static_cast<char>(byte) + "\"";
}

std::string FormulaParser::suggestion(std::string_view word) const {
  std::string best;
  std::size_t best_distance = 3;  // further away is another word, not a slip
  for (const auto* names : {&formula_.heads_, &formula_.inputs_}) {
    for (const std::string& name : *names) {
      const std::size_t distance = word.size() > 64 ? best_distance : edit_distance(word, name);
      if (distance < best_distance && distance < name.size()) {
        best_distance = distance;
        best = name;
      }
    }
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace lambda_svc
