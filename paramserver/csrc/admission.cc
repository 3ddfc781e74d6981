#include "paramserver/csrc/admission.h"

#include <algorithm>
#include <bit>

#include "paramserver/csrc/hash.h"

namespace paramserver {
namespace {

constexpr std::uint64_t kIdsPerLine = 16;
// Occupied rows that the hand compares to choose one.
constexpr int kCompared = 24;

}  // namespace

FrequencySketch::FrequencySketch(std::uint64_t ids)
    : lines_(std::bit_ceil(std::max<std::uint64_t>(ids / kIdsPerLine, 16))), region_(lines_ * sizeof(Line), true) {}

FrequencySketch::Four FrequencySketch::find(std::int64_t id) const noexcept {
  const std::uint64_t hash = mix(id);
  std::uint8_t* line = reinterpret_cast<Line*>(region_.data())[hash & (lines_ - 1)].counts;
  // The line takes the low bits; four of the high ones choose in each quarter.
  return {{line + (hash >> 60), line + 16 + (hash >> 56 & 15), line + 32 + (hash >> 52 & 15),
           line + 48 + (hash >> 48 & 15)}};
}

void FrequencySketch::add(std::int64_t id) noexcept {
  const unsigned now = count(id);
  if (now < kCountMax) raise(id, now + 1);
}

// Only the counters that say too little are raised: others have counted other ids, and grow less wrong this way.
void FrequencySketch::raise(std::int64_t id, unsigned count) noexcept {
  count = std::min(count, kCountMax);
  for (std::uint8_t* at : find(id).at) *at = static_cast<std::uint8_t>(std::max<unsigned>(*at, count));
}

unsigned FrequencySketch::count(std::int64_t id) const noexcept {
  const Four four = find(id);
  return std::min(std::min(*four.at[0], *four.at[1]), std::min(*four.at[2], *four.at[3]));
}

void FrequencySketch::halve() noexcept {
  auto* bytes = reinterpret_cast<std::uint8_t*>(region_.data());
  for (std::size_t i = 0; i < lines_ * sizeof(Line); ++i) bytes[i] >>= 1;
}

RowClock::RowClock(std::uint64_t rows_max)
    : rows_max_(rows_max), counts_(std::make_unique<std::atomic<std::uint8_t>[]>(rows_max)), rows_(rows_max) {}

void RowClock::place(RowNumber row, std::int64_t id, RowState home, unsigned count) noexcept {
  if (row >= rows_max_) return;
  occupied_ += !rows_[row].occupied;
  rows_[row] = {id, home, true};
  counts_[row].store(static_cast<std::uint8_t>(std::min(count, FrequencySketch::kCountMax)),
                     std::memory_order_relaxed);
}

void RowClock::remove(RowNumber row) noexcept {
  untrack(row);
  if (row < rows_max_) rows_[row].home = {};
}

void RowClock::untrack(RowNumber row) noexcept {
  if (!occupied(row)) return;
  rows_[row].occupied = false;
  --occupied_;
}

void RowClock::track(RowNumber row) noexcept {
  if (row >= rows_max_ || rows_[row].occupied) return;
  rows_[row].occupied = true;
  ++occupied_;
}

RowNumber RowClock::victim() noexcept {
  RowNumber best = rows_max_;
  if (occupied_ == 0) return best;
  for (int compared = 0; compared < kCompared && (best == rows_max_ || count(best) != 0);) {
    const RowNumber row = hand_;
    hand_ = hand_ + 1 == rows_max_ ? 0 : hand_ + 1;
    if (!rows_[row].occupied) continue;
    ++compared;
    if (best == rows_max_ || count(row) < count(best)) best = row;
  }
  return best;
}

void RowClock::halve() noexcept {
  for (RowNumber row = 0; row < rows_max_; ++row) {
    counts_[row].store(static_cast<std::uint8_t>(count(row) >> 1), std::memory_order_relaxed);
  }
}

}  // namespace paramserver
