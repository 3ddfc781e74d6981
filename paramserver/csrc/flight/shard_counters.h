// What a shard server counts: per table, lookups, rows by status, bytes and latencies; for the server, refusals by
// code, streams and lookups in flight.
//
// Thread-safety: every counter is a relaxed atomic; a copy taken beside lookups may be off by the lookups in progress.
// Ownership: TableCounters outlive the epochs that use them, so that a table's totals never fall.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "paramserver/csrc/flight/in_flight.h"
#include "paramserver/csrc/flight/wire.h"
#include "paramserver/csrc/row_source.h"

namespace paramserver::flight {

// Upper bounds of the latency buckets, in microseconds; the last bucket is everything above.
inline constexpr std::array<std::int64_t, 18> kLatencyBounds_us = {
    50,    100,   200,    300,    500,    750,    1'000,   1'500,   2'000,
    3'000, 5'000, 10'000, 20'000, 50'000, 100'000, 200'000, 500'000, 1'000'000};

using Counter = std::atomic<std::uint64_t>;

inline void add(Counter& counter, std::uint64_t n) noexcept { counter.fetch_add(n, std::memory_order_relaxed); }

struct TableCounters {
  Counter lookups{0};                                       // answered in full
  Counter bytes{0};                                         // of rows sent
  std::array<Counter, kRowStatuses> rows{};                 // sent, by status
  std::array<Counter, kLatencyBounds_us.size() + 1> latency{};  // of answered lookups, arrival to last write
  Counter latency_sum_us{0};

  void answered(std::int64_t latency_us) noexcept {
    std::size_t bucket = 0;
    while (bucket < kLatencyBounds_us.size() && latency_us > kLatencyBounds_us[bucket]) ++bucket;
    add(latency[bucket], 1);
    add(latency_sum_us, static_cast<std::uint64_t>(latency_us));
    add(lookups, 1);
  }

  void sent(const RowStatus* status /*[n]*/, std::size_t n, std::size_t row_bytes) noexcept {
    std::array<std::uint64_t, kRowStatuses> counts{};
    for (std::size_t i = 0; i < n; ++i) ++counts[static_cast<std::size_t>(status[i])];
    for (std::size_t s = 0; s < kRowStatuses; ++s) {
      if (counts[s] > 0) add(rows[s], counts[s]);
    }
    add(bytes, n * row_bytes);
  }
};

struct ServerCounters {
  std::array<Counter, kAnswerCodes> refusals{};  // by AnswerCode; kOk stays 0
  Counter messages_bad{0};                       // messages that were no lookups
  Counter streams{0};                            // opened, ever
  std::atomic<std::int64_t> streams_open{0};
  Counter calls_unauthenticated{0};
  InFlight lookups;
};

}  // namespace paramserver::flight
