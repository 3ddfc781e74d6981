#include "paramserver/csrc/quiescence.h"

namespace paramserver {

std::size_t thread_number() noexcept {
  static std::atomic<std::size_t> threads{0};
  static thread_local const std::size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return number;
}

std::atomic<std::int64_t>& ReaderGate::enter() const noexcept {
  const std::uint64_t turn = turn_.load(std::memory_order_relaxed);
  std::atomic<std::int64_t>& count = stripes_[thread_number() % kStripes].readers[turn & 1];
  // Sequentially consistent: either the writer's later look at this counter sees the reader, or the reader's later
  // loads see what the writer unpublished before that look.
  count.fetch_add(1, std::memory_order_seq_cst);
  return count;
}

bool ReaderGate::try_advance() noexcept {
  const std::uint64_t turn = turn_.load(std::memory_order_relaxed);
  for (Stripe& stripe : stripes_) {
    if (stripe.readers[(turn + 1) & 1].load(std::memory_order_seq_cst) != 0) return false;
  }
  turn_.store(turn + 1, std::memory_order_seq_cst);
  return true;
}

}  // namespace paramserver
