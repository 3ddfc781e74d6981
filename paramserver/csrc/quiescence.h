// Tells a writer when memory that it has unpublished can no longer be held by any reader, without a lock and without
// ever making a reader wait.
//
// A reader enters the gate, reads what is published, and leaves. Entering counts it in one of two counters, by the
// parity of the current turn. A writer advances the turn from t to t+1 only when the counter of turn t-1's parity was
// seen at zero. Memory retired in turn r is free from turn r+2 on: by then both parities were seen at zero after the
// retirement, so every reader that entered before it has left. (A reader delayed between reading the turn and counting
// itself may count in either parity; that is why both must have been zero, and why the readers of one parity only
// delay an advance and never break it.)
//
// Counters are striped over cache lines by thread, so that readers on different cores do not share one.
// Thread-safety: enter and leave from any thread; turn and try_advance from one writer at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace paramserver {

// A small number of this thread's own, for choosing among striped counters.
std::size_t thread_number() noexcept;

class ReaderGate {
 public:
  // Holds the gate open for reading while it lives. Must not outlive the gate.
  class Visit {
   public:
    explicit Visit(const ReaderGate& gate) noexcept : count_(gate.enter()) {}
    ~Visit() { count_.fetch_sub(1, std::memory_order_release); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    std::atomic<std::int64_t>& count_;
  };

  std::uint64_t turn() const noexcept { return turn_.load(std::memory_order_relaxed); }

  // True when the turn went on by one.
  bool try_advance() noexcept;

  static constexpr std::uint64_t kTurnsToQuiet = 2;

 private:
  static constexpr std::size_t kStripes = 64;
  struct alignas(128) Stripe {
    std::atomic<std::int64_t> readers[2] = {0, 0};
  };

  std::atomic<std::int64_t>& enter() const noexcept;

  std::atomic<std::uint64_t> turn_{2};
  mutable std::array<Stripe, kStripes> stripes_;
};

}  // namespace paramserver
