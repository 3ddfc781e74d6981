// When a request must stop, and how long its stages took.
//
// Thread-safety: each belongs to one request; the cancel flag it watches may be set from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "lambda_svc/csrc/errors.h"
#include "paramserver/csrc/row_source.h"

namespace lambda_svc {

// steady_clock is CLOCK_MONOTONIC, the clock deadlines are given in.
inline std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Limits {
 public:
  Limits(std::int64_t deadline_ns, const std::atomic<bool>* cancelled, std::int64_t partial_ns = 0)
      : partial_ns_(partial_ns) {
    if (deadline_ns != 0) context_.deadline_ns = deadline_ns;
    context_.cancelled = cancelled;
  }

  // Whether what is scored has to do, since work of `work_ns` from now on would end too late.
  bool settles_for_part(std::int64_t work_ns) const {
    return partial_ns_ != 0 && monotonic_ns() > partial_ns_ - work_ns;
  }

  // Throws Cancelled, naming the stage that did not begin.
  void check_cancelled(const char* stage) const {
    if (context_.cancelled == nullptr || !context_.cancelled->load(std::memory_order_relaxed)) return;
    throw Cancelled(std::string("cancelled before stage ") + stage);
  }

  // The same, or throws DeadlineExceeded.
  void check(const char* stage) const {
    check_cancelled(stage);
    const std::int64_t now_ns = monotonic_ns();
    if (now_ns < context_.deadline_ns) return;
    throw DeadlineExceeded("the deadline passed " + late_us(now_ns) + " us before stage " + stage +
                           "; ask for fewer candidates or allow more time");
  }

  const paramserver::LookupContext& lookup_context() const { return context_; }

 private:
  // Unsigned, since a deadline from before the clock's zero may lie further back than int64 reaches.
  std::string late_us(std::int64_t now_ns) const {
    const std::uint64_t late_ns =
        static_cast<std::uint64_t>(now_ns) - static_cast<std::uint64_t>(context_.deadline_ns);
    return std::to_string(late_ns / 1000);
  }

  paramserver::LookupContext context_;
  std::int64_t partial_ns_;
};

class Stopwatch {
 public:
  // Microseconds since construction or the last lap.
  std::uint32_t lap_us() {
    const std::int64_t now = monotonic_ns();
    const std::int64_t past = now - last_ns_;
    last_ns_ = now;
    return static_cast<std::uint32_t>((past + 500) / 1000);
  }

 private:
  std::int64_t last_ns_ = monotonic_ns();
};

}  // namespace lambda_svc
