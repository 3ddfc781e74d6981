// What touches very many rows of a table at once: rows that come as they are stored, and rows that have expired.
#include <algorithm>
#include <string>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/stored_rows.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

// Rows that are written without another writer in between.
constexpr std::size_t kChunk = 4096;

}  // namespace

std::uint64_t Table::add_rows(const std::int64_t* ids, const std::byte* rows, std::size_t n,
                              const std::uint32_t* times) {
  const std::size_t unfit = first_unfit(stored_, dim_, rows, n);
  if (unfit != n) {
    throw RowValueError("rows[" + std::to_string(unfit) + "] (id " + std::to_string(ids[unfit]) +
                        "): not a row that a table stores, NaN or infinity in it; nothing of the batch was written");
  }
  const std::uint64_t before = size();
  const std::byte* places[kChunk];
  for (std::size_t first = 0; first < n; first += kChunk) {
    const std::size_t count = std::min(kChunk, n - first);
    for (std::size_t i = 0; i < count; ++i) places[i] = rows + (first + i) * row_bytes();
    load_rows(ids + first, places, count, times == nullptr ? nullptr : times + first);
  }
  return size() - before;
}

// The age class of a base row: the newest version that is not said to be younger than the row is.
std::uint32_t Table::base_version_of(std::uint32_t time_s) const noexcept {
  if (!keeps_times()) return kBaseVersion;
  const auto* times = reinterpret_cast<const std::uint32_t*>(times_.data());
  const auto* after = std::upper_bound(times, times + kBaseVersion + 1, time_s);
  return after == times ? 0 : static_cast<std::uint32_t>(after - times - 1);
}

std::uint64_t Table::sweep(std::uint32_t now_s) {
  std::lock_guard<std::mutex> lock(writer_);
  if (!keeps_times()) return 0;
  reclaim();
  // With a filter, what a delta finds here must not depend on when somebody swept: an id that this takes away is one
  // that the newest delta, and so every later one, counts as expired already.
  const double newest_s = written_s(applied_.back().version);
  const double limit = (admit_after_ > 1 ? std::min<double>(now_s, newest_s) : now_s) - ttl_s_;
  const auto* times = reinterpret_cast<const std::uint32_t*>(times_.data());
  const auto past = [](double wanted, std::uint32_t time) { return wanted < static_cast<double>(time); };
  const auto oldest = static_cast<std::uint32_t>(std::upper_bound(times, times + versions_, limit, past) - times);
  const std::uint64_t before = live_;
  for (const IndexSlot& slot : index_->view()) {
    const RowState state{slot.state.load(std::memory_order_relaxed)};
    if (state.version() >= oldest || (!state.live() && state.deltas() == 0)) continue;
    const std::int64_t id = slot.id.load(std::memory_order_relaxed);
    // Its version stays, so that an older epoch is still sent to an undo index.
    change({state.version(), nullptr, 0, 1}, index_->place(id), id, RowState::absent(state.version()));
    if (!state.live()) continue;
    for (Applied& one : applied_) one.rows -= one.version >= state.version() ? 1 : 0;
  }
  show_rows();
  settle();
  return before - live_;
}

}  // namespace paramserver
