// CHECK for the C++ tests: counts what failed, says where, and lets main() return it.
#pragma once

#include <cstdio>

namespace paramserver {

inline int check_failures = 0;

}  // namespace paramserver

#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      ++paramserver::check_failures;                                                       \
      std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition);   \
    }                                                                                      \
  } while (false)
