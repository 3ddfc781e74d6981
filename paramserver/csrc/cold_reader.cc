#include "paramserver/csrc/cold_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>

#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/slot_geometry.h"

namespace paramserver {
namespace {

constexpr std::uint32_t kNobodys = ~std::uint32_t{0};
constexpr int kPageShift = 40;
// How long a batch waits between two looks at its cancel flag.
constexpr std::int64_t kPatienceNs = 2'000'000;
constexpr std::size_t kReapedMax = 64;

bool over(const ReadLimits& limits) noexcept {
  if (limits.cancelled != nullptr && limits.cancelled->load(std::memory_order_relaxed)) return true;
  return limits.deadline_ns != std::numeric_limits<std::int64_t>::max() && monotonic_ns() >= limits.deadline_ns;
}

std::int64_t patience(const ReadLimits& limits) noexcept {
  if (limits.deadline_ns == std::numeric_limits<std::int64_t>::max()) return kPatienceNs;
  return std::clamp<std::int64_t>(limits.deadline_ns - monotonic_ns(), 1, kPatienceNs);
}

}  // namespace

ColdReader::ColdReader(const Options& options) : options_(options), threads_(options.threads) {
  // A queue made now tells whether the system lets us, and serves the first call.
  uring_ = options.uring && make_uring_queue(1) != nullptr;
  idle_.reserve(options.queues_max);
}

ColdReader::~ColdReader() = default;

void ColdReader::plan(const SlotRead* slots, std::size_t n, Scratch& scratch) {
  auto& places = scratch.places;
  places.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    places[i] = {static_cast<std::uint64_t>(slots[i].fd) << kPageShift | slots[i].block_offset / kPageBytes, i};
  }
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  auto& runs = scratch.runs;
  runs.clear();
  for (std::uint32_t i = 0; i < n; ++i) {
    const SlotRead& slot = slots[places[i].slot];
    if (!runs.empty() && slot.fd == slots[places[i - 1].slot].fd) {
      Scratch::Run& run = runs.back();
      const std::uint64_t end = slot.block_offset + slot.block_bytes;
      const bool inside = end <= run.offset + run.bytes;
      const bool beside = slot.block_offset == run.offset + run.bytes && end - run.offset <= kReadBytesMax;
      if (inside || beside) {
        run.end = i + 1;
        if (beside) run.bytes = end - run.offset;
        continue;
      }
    }
    runs.push_back({i, i + 1, slot.block_offset, slot.block_bytes});
  }
}

std::unique_ptr<ColdReader::Lanes> ColdReader::make_lanes() {
  auto lanes = std::make_unique<Lanes>();
  lanes->queue = uring_ ? make_uring_queue(options_.depth_max) : threads_.make_queue(options_.depth_max);
  // A sandbox may allow one ring and refuse the next: threads do for that one.
  if (lanes->queue == nullptr) lanes->queue = threads_.make_queue(options_.depth_max);
  lanes->runs.assign(options_.depth_max, kNobodys);
  for (unsigned lane = options_.depth_max; lane-- > 0;) lanes->free.push_back(lane);
  return lanes;
}

std::unique_ptr<ColdReader::Lanes> ColdReader::borrow(const ReadLimits& limits) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (!idle_.empty()) {
      auto lanes = std::move(idle_.back());
      idle_.pop_back();
      return lanes;
    }
    if (queues_ < options_.queues_max) break;
    if (over(limits)) return nullptr;
    returned_.wait_for(lock, std::chrono::nanoseconds(patience(limits)));
  }
  ++queues_;
  lock.unlock();
  try {
    return make_lanes();
  } catch (...) {
    lock.lock();
    --queues_;
    return nullptr;
  }
}

void ColdReader::give_back(std::unique_ptr<Lanes> lanes) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(lanes));
  returned_.notify_one();
}

void ColdReader::read(SlotRead* slots, std::size_t n, const ReadLimits& limits, Scratch& scratch) noexcept {
  if (n == 0) return;
  for (std::size_t i = 0; i < n; ++i) slots[i].outcome = ReadOutcome::kUnread;
  try {
    plan(slots, n, scratch);
    if (auto lanes = borrow(limits); lanes != nullptr) {
      run(slots, limits, scratch, *lanes);
      give_back(std::move(lanes));
    }
  } catch (const std::bad_alloc&) {
    // Without memory for the batch nothing of it was read, which is what the outcomes say.
  }
  std::uint64_t counts[3] = {0, 0, 0};
  for (std::size_t i = 0; i < n; ++i) ++counts[static_cast<int>(slots[i].outcome)];
  unread_.fetch_add(counts[static_cast<int>(ReadOutcome::kUnread)], std::memory_order_relaxed);
  slots_.fetch_add(counts[static_cast<int>(ReadOutcome::kDone)], std::memory_order_relaxed);
  failed_.fetch_add(counts[static_cast<int>(ReadOutcome::kFailed)], std::memory_order_relaxed);
}

void ColdReader::run(SlotRead* slots, const ReadLimits& limits, const Scratch& scratch, Lanes& lanes) noexcept {
  ReadQueue::Completion done[kReapedMax];
  std::uint32_t next = 0;
  std::uint64_t started = 0;
  std::uint64_t bytes = 0;
  const auto runs = static_cast<std::uint32_t>(scratch.runs.size());
  for (std::uint32_t finished = 0; finished < runs && !over(limits);) {
    for (; next < runs && !lanes.free.empty(); ++next) {
      const Scratch::Run& run = scratch.runs[next];
      const unsigned lane = lanes.free.back();
      lanes.free.pop_back();
      lanes.runs[lane] = next;
      lanes.queue->start(lane, slots[scratch.places[run.first].slot].fd, run.offset, run.bytes);
      in_flight_.fetch_add(1, std::memory_order_relaxed);
      ++started;
      bytes += run.bytes;
    }
    const std::size_t got = lanes.queue->reap(done, kReapedMax, patience(limits));
    for (std::size_t i = 0; i < got; ++i) {
      const unsigned lane = done[i].lane;
      lanes.free.push_back(lane);
      if (lanes.runs[lane] == kNobodys) continue;
      finish(slots, scratch, lanes.runs[lane], lanes.queue->buffer(lane), done[i].result);
      ++finished;
    }
    in_flight_.fetch_sub(got, std::memory_order_relaxed);
  }
  // What is in flight now arrives when this batch is gone.
  std::fill(lanes.runs.begin(), lanes.runs.end(), kNobodys);
  reads_.fetch_add(started, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

void ColdReader::finish(SlotRead* slots, const Scratch& scratch, std::uint32_t number, const std::byte* buffer,
                        std::int64_t result) noexcept {
  const Scratch::Run& run = scratch.runs[number];
  for (std::uint32_t i = run.first; i < run.end; ++i) {
    SlotRead& slot = slots[scratch.places[i].slot];
    const std::uint64_t at = slot.block_offset - run.offset + slot.offset_in_block;
    // A read that ends early ends at the end of a file that was cut: what it brought still counts.
    const bool whole = result >= 0 && at + slot.bytes <= static_cast<std::uint64_t>(result);
    slot.outcome = whole ? ReadOutcome::kDone : ReadOutcome::kFailed;
    if (whole) std::memcpy(slot.to, buffer + at, slot.bytes);
  }
}

ColdReaderStats ColdReader::stats() const noexcept {
  return {.reads = reads_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed),
          .slots = slots_.load(std::memory_order_relaxed),
          .slots_failed = failed_.load(std::memory_order_relaxed),
          .slots_unread = unread_.load(std::memory_order_relaxed),
          .in_flight = in_flight_.load(std::memory_order_relaxed)};
}

}  // namespace paramserver
