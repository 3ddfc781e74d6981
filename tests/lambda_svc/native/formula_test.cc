#include "lambda_svc/csrc/formula.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "lambda_svc/csrc/errors.h"
#include "tests/lambda_svc/native/check.h"

using namespace lambda_svc;

namespace {

std::vector<double> scores(const Formula& formula, const std::vector<float>& a, const std::vector<float>& b) {
  const float* heads[] = {a.data()};
  const void* inputs[] = {b.data()};
  std::vector<double> out(a.size());
  std::vector<double> scratch(formula.scratch_values());
  formula.evaluate(heads, inputs, a.size(), out.data(), scratch.data());
  return out;
}

double score(const std::string& text, float a = 0, float b = 0) {
  return scores(Formula(text, {"a"}, {"b"}), {a}, {b})[0];
}

}  // namespace

TEST(formula_binds_as_arithmetic_does) {
  CHECK(score("1 + 2 * 3 - 4 / 8") == 6.5);
  CHECK(score("-(1 - 2) - -3") == 4);
  CHECK(score("8 / 4 / 2") == 1);
  CHECK(score("a * 0.7 + 0.3 * log(1 + b)", 2, 3) == 2.0f * 0.7 + 0.3 * std::log(4.0));
  CHECK(score("pow(a, b)", 2, 10) == 1024);
  CHECK(score("max(a, b, 1, 7)", 2, 10) == 10);
  CHECK(score("clip(a, -1, 1)", 5) == 1);
  CHECK(score("1e-3 + .5") == 0.501);
}

TEST(formula_follows_ieee_and_never_hides_nan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* text : {"min(a, 1)", "max(1, a)", "clip(a, 0, 1)", "clip(1, a, 2)", "clip(1, 0, a)", "a * 0",
                           "pow(a, 0)", "pow(1, a)"}) {
    CHECK(std::isnan(score(text, nan)));
  }
  CHECK(std::isinf(score("1 / a", 0)));
  CHECK(std::isnan(score("log(a)", -1)));
}

TEST(formula_evaluates_every_candidate_whatever_the_block) {
  const Formula formula("clip(a + b, -100, 3) * (a - b)", {"a"}, {"b"});
  for (const std::size_t n : {0, 1, 255, 256, 257, 1000}) {
    std::vector<float> a(n), b(n);
    for (std::size_t i = 0; i < n; ++i) a[i] = static_cast<float>(i) * 0.01f, b[i] = 1.f - a[i] * 0.5f;
    const std::vector<double> got = scores(formula, a, b);
    for (std::size_t i = 0; i < n; ++i) {
      const double x = a[i], y = b[i];
      CHECK(got[i] == std::min(std::max(x + y, -100.0), 3.0) * (x - y));
    }
  }
}

TEST(formula_errors_say_where_and_what) {
  const auto wrong = [](const std::string& text) { return Formula(text, {"liked", "engaged"}, {"bid"}); };
  CHECK_THROWS(FormulaError, "position 6: nothing is called linked; did you mean liked?", wrong("1 +   linked"));
  CHECK_THROWS(FormulaError, "position 7: expected a number", wrong("liked *"));
  CHECK_THROWS(FormulaError, "position 6: expected \")\"", wrong("(liked"));
  CHECK_THROWS(FormulaError, "pow takes 2 arguments, got 1", wrong("pow(bid)"));
  CHECK_THROWS(FormulaError, "no function is called sqrt", wrong("sqrt(bid)"));
  CHECK_THROWS(FormulaError, "expected an operator or the end", wrong("liked engaged"));
  CHECK_THROWS(FormulaError, "expected an operator or the end", wrong(std::string("liked\0", 6)));
  CHECK_THROWS(FormulaError, "nested deeper", wrong(std::string(100, '(') + "1" + std::string(100, ')')));
  CHECK_THROWS(FormulaError, "nested deeper", wrong(std::string(1000, '-') + "1"));
  CHECK_THROWS(FormulaError, "at most 4096", wrong(std::string(5000, '1')));
  CHECK_THROWS(FormulaError, "float64", wrong("1e999"));
  CHECK_THROWS(FormulaError, "declared twice", Formula("x", {"x"}, {"x"}));
  CHECK_THROWS(FormulaError, "cannot be named", Formula("x", {"x y"}, {}));
}

// Random tokens reach every branch of the parser; what it accepts must evaluate inside its scratch memory (ASan).
TEST(formula_survives_random_text) {
  const std::vector<std::string> tokens{"a",   "b",    "1",   "2.5", "(",   ")",    ",",    "+", "-", "*",  "/",
                                        "min", "max(", "exp(", "log", "pow(", "clip(", "1e", " ", ".", "\xff", "0x1"};
  std::mt19937 random(7);
  int accepted = 0;
  for (int round = 0; round < 50000; ++round) {
    std::string text;
    const int length = static_cast<int>(random() % 12);
    for (int i = 0; i < length; ++i) text += tokens[random() % tokens.size()];
    if (random() % 8 == 0 && !text.empty()) text[random() % text.size()] = static_cast<char>(random());
    try {
      const Formula formula(text, {"a"}, {"b"});
      scores(formula, {1.f, 2.f}, {3.f, 4.f});
      ++accepted;
    } catch (const FormulaError& error) {
      CHECK(error.position <= text.size());
    }
  }
  CHECK(accepted > 100);
}
