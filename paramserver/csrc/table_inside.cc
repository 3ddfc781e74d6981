// Looking inside a table: its ids, what it knows of one, and how large it is.
#include <algorithm>
#include <string>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/table.h"

namespace paramserver {

std::vector<std::int64_t> Table::ids(std::uint64_t epoch) const {
  std::vector<std::int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(writer_);
    const TableView view(state_, memory_->base(), epoch);
    if (!view.known()) throw unknown_epoch(epoch);
    ids.reserve(size());
    for (const IndexSlot& slot : index_->view()) {
      const RowState state{slot.state.load(std::memory_order_relaxed)};
      const std::int64_t id = slot.id.load(std::memory_order_relaxed);
      if (!state.empty() && view.as_of(id, state).live()) ids.push_back(id);
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

void Table::times(const std::int64_t* ids, std::size_t n, std::uint64_t epoch, std::uint32_t* out) const {
  std::lock_guard<std::mutex> lock(writer_);
  const TableView view(state_, memory_->base(), epoch);
  if (!view.known()) throw unknown_epoch(epoch);
  for (std::size_t i = 0; i < n; ++i) {
    const RowState state = view.as_written(ids[i], view.index().find(ids[i]));
    out[i] = state.live() && keeps_times() ? view.time_s(state.version()) : 0;
  }
}

IdStory Table::why(std::int64_t id, std::uint64_t epoch) const {
  std::lock_guard<std::mutex> lock(writer_);
  const TableView view(state_, memory_->base(), epoch);
  if (!view.known()) throw unknown_epoch(epoch);
  IdStory story;
  story.state = view.as_written(id, view.index().find(id));
  if (story.state.empty()) return story;
  const std::uint32_t version = story.state.version();
  story.sequence = base_sequence_ + (version > kBaseVersion ? version - kBaseVersion : 0);
  story.time_s = view.time_s(version);
  story.expires_s = keeps_times() ? story.time_s + ttl_s_ : 0.0;
  return story;
}

bool Table::holds(std::uint64_t epoch) const noexcept {
  const ReaderGate::Visit visit(state_.gate);
  return TableView(state_, memory_->base(), epoch).known();
}

TableStats Table::stats() const {
  std::lock_guard<std::mutex> lock(writer_);
  return {.rows = live_,
          .rows_retired = retired_rows_.size(),
          .rows_pending = pending_,
          .bytes_index = bytes_index(),
          .bytes_rows = rows_.bytes(),
          .bytes_undo = bytes_undo(),
          .bytes_peak = bytes_peak_,
          .huge_pages = index_->region().huge() && rows_.huge(),
          .instruction_set = kernels_.name,
          .lookups = reader_.counters().lookups(),
          .statuses = reader_.counters().sum()};
}

void check_bags(const std::int32_t* offsets, std::size_t bags, std::size_t n) {
  if (offsets[0] != 0) {
    throw BagError("offsets[0] is " + std::to_string(offsets[0]) + ", expected 0");
  }
  for (std::size_t b = 0; b < bags; ++b) {
    if (offsets[b + 1] >= offsets[b]) [[likely]] continue;
    throw BagError("offsets[" + std::to_string(b + 1) + "] is " + std::to_string(offsets[b + 1]) + ", less than " +
                   std::to_string(offsets[b]) + " before it: offsets must never fall");
  }
  if (static_cast<std::size_t>(offsets[bags]) != n) {
    throw BagError("offsets ends at " + std::to_string(offsets[bags]) + ", but there are " + std::to_string(n) +
                   " ids: the last offset must equal the number of ids");
  }
}

}  // namespace paramserver
