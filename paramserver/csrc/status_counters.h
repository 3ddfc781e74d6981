// How many ids each status was given to, counted by many readers at once: a few additions a call, on lines that threads
// do not share.
//
// Thread-safety: everything from any thread. A sum is exact once no lookup runs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/quiescence.h"
#include "paramserver/csrc/row_source.h"

namespace paramserver {

// What one call counts before it adds to the shared counters.
using StatusTally = std::array<std::uint64_t, kRowStatuses>;

class StatusCounters {
 public:
  void add(const StatusTally& tally) noexcept {
    Stripe& stripe = stripes_[thread_number() % kStripes];
    for (std::size_t s = 0; s < kRowStatuses; ++s) {
      if (tally[s] != 0) stripe.counts[s].fetch_add(tally[s], std::memory_order_relaxed);
    }
    stripe.lookups.fetch_add(1, std::memory_order_relaxed);
  }

  StatusTally sum() const noexcept {
    StatusTally total{};
    for (const Stripe& stripe : stripes_) {
      for (std::size_t s = 0; s < kRowStatuses; ++s) total[s] += stripe.counts[s].load(std::memory_order_relaxed);
    }
    return total;
  }

  std::uint64_t lookups() const noexcept {
    std::uint64_t total = 0;
    for (const Stripe& stripe : stripes_) total += stripe.lookups.load(std::memory_order_relaxed);
    return total;
  }

 private:
  static constexpr std::size_t kStripes = 32;
  struct alignas(128) Stripe {
    std::array<std::atomic<std::uint64_t>, kRowStatuses> counts{};
    std::atomic<std::uint64_t> lookups{0};
  };
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace paramserver
