// Recursive descent over a rank formula's text, emitting postfix steps. Used by Formula's constructor only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lambda_svc/csrc/formula.h"

namespace lambda_svc {

class FormulaParser {
 public:
  explicit FormulaParser(Formula& formula) : formula_(formula), text_(formula.text_) {}
  void parse();

 private:
  using Op = Formula::Op;
  class Nested;

  void declare(const std::vector<std::string>& names, const char* what) const;
  void sum();
  void product();
  void unary();
  void number();
  void name();
  void call(std::string_view function, std::size_t start);
  void variable(std::string_view name, std::size_t start);
  void emit(Op op, std::uint32_t index = 0, double constant = 0);
  char peek();
  bool take(char wanted);
  void expect(char wanted);
  [[noreturn]] void fail(std::size_t position, const std::string& what) const;
  std::string seen(std::size_t position) const;
  std::string suggestion(std::string_view name) const;

  Formula& formula_;
  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::size_t stack_ = 0;
};

}  // namespace lambda_svc
