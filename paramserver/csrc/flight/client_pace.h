// When a replica has been silent for long enough to ask another: learnt from how long answers are silent, as TCP learns
// when to send again (Jacobson: "Congestion Avoidance and Control", 1988), and bounded, so that a slow cluster is not
// asked everything twice.
//
// Thread-safety: every method from any thread; samples that race are lost, which an average can bear.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace paramserver::flight {

class Pace {
 public:
  // fixed_ms: hedge after that; 0: never; below 0: after what is learnt.
  explicit Pace(double fixed_ms) : fixed_ms_(fixed_ms) {}

  // How long an answer was silent at most, and one more lookup that pays for a tenth of a hedge.
  void record(std::int64_t silence_ns) noexcept {
    const double mean = mean_.load(std::memory_order_relaxed);
    const double off = static_cast<double>(silence_ns) - mean;
    mean_.store(mean + off / 8, std::memory_order_relaxed);
    const double deviation = deviation_.load(std::memory_order_relaxed);
    deviation_.store(deviation + ((off < 0 ? -off : off) - deviation) / 4, std::memory_order_relaxed);
    const std::int32_t tenths = tenths_.load(std::memory_order_relaxed);
    if (tenths < kTenthsMax) tenths_.store(tenths + 1, std::memory_order_relaxed);
  }

  // The silence that few answers go beyond, in nanoseconds.
  std::int64_t usual_ns() const noexcept {
    const double usual = mean_.load(std::memory_order_relaxed) + 4 * deviation_.load(std::memory_order_relaxed);
    return static_cast<std::int64_t>(std::max(usual, kLeastNs));
  }

  // Nanoseconds of silence, at most `most_ns`, after which to hedge; most_ns when that is never.
  std::int64_t hedge_after_ns(std::int64_t most_ns) const noexcept {
    if (fixed_ms_ == 0) return most_ns;
    return std::min(most_ns, fixed_ms_ > 0 ? static_cast<std::int64_t>(fixed_ms_ * 1e6) : usual_ns());
  }

  // Whether one more hedge is within a tenth of the lookups.
  bool take_hedge() noexcept {
    std::int32_t tenths = tenths_.load(std::memory_order_relaxed);
    while (tenths >= 10) {
      if (tenths_.compare_exchange_weak(tenths, tenths - 10, std::memory_order_relaxed)) return true;
    }
    return false;
  }

 private:
  static constexpr double kLeastNs = 3e6;
  static constexpr std::int32_t kTenthsMax = 200;

  const double fixed_ms_;
  std::atomic<double> mean_{20e6};  // begins careful
  std::atomic<double> deviation_{10e6};
  std::atomic<std::int32_t> tenths_{kTenthsMax};
};

}  // namespace paramserver::flight
