// The clock that deadlines are given in.
#pragma once

#include <cstdint>
#include <ctime>

namespace paramserver {

// CLOCK_MONOTONIC, which is also std::chrono::steady_clock's.
inline std::int64_t monotonic_ns() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace paramserver
