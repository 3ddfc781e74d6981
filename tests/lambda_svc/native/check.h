// The smallest test harness that does: TEST bodies register themselves, CHECK counts failures, main reports them.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace lambda_svc::test {

struct Case {
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

inline bool add(const char* name, void (*body)()) {
  cases().push_back({name, body});
  return true;
}

inline void fail(const char* file, int line, const std::string& what) {
  ++failures();
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
}

// The message of the error of type E that `action` throws; empty when it throws none.
template <class E>
std::string thrown(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace lambda_svc::test

#define TEST(name)                                                                        \
  static void name();                                                                     \
  static const bool name##_added = lambda_svc::test::add(#name, name);                    \
  static void name()
#define CHECK(condition) \
  ((condition) ? (void)0 : lambda_svc::test::fail(__FILE__, __LINE__, "expected " #condition))
#define CHECK_THROWS(type, part, ...)                                                     \
  do {                                                                                    \
    const std::string message = lambda_svc::test::thrown<type>([&] { __VA_ARGS__; });     \
    if (message.find(part) == std::string::npos || message.empty()) {                     \
      lambda_svc::test::fail(__FILE__, __LINE__, #type " with \"" part "\", got: " + message); \
    }                                                                                     \
  } while (false)
