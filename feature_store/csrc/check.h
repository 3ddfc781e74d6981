// The smallest test harness that serves: TEST registers a case, CHECK counts failures and goes on.
#pragma once

#include <cstdio>
#include <vector>

namespace feature_store::test {

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Register {
  Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

}  // namespace feature_store::test

#define TEST(NAME)                                                       \
  static void NAME();                                                    \
  static const feature_store::test::Register register_##NAME(#NAME, NAME); \
  static void NAME()

#define CHECK(CONDITION)                                                                   \
  do {                                                                                     \
    if (!(CONDITION)) {                                                                    \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #CONDITION);         \
      ++feature_store::test::failures();                                                   \
    }                                                                                      \
  } while (false)
