#include "paramserver/csrc/table_view.h"

#include <algorithm>
#include <ctime>

namespace paramserver {
namespace {

const Directory* directory_of(const TableState& state, const std::byte* base) noexcept {
  const std::uint64_t offset = state.directory.load(std::memory_order_seq_cst);
  return reinterpret_cast<const Directory*>(at_offset(base, offset));
}

}  // namespace

double wall_clock_s() noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TableView::TableView(const TableState& state, const std::byte* base, std::uint64_t epoch) noexcept
    : TableView(state, base, directory_of(state, base), epoch) {
  follows_ = true;
}

TableView::TableView(const TableState& state, const std::byte* base, const Directory* copy,
                     std::uint64_t epoch) noexcept
    : state_(&state), base_(base), directory_(copy),
      index_{reinterpret_cast<const IndexSlot*>(at_offset(base, directory_->slots)), directory_->lines} {
  const EpochEntry* begin = directory_->epoch_entries();
  const EpochEntry* end = begin + directory_->epochs;
  std::uint32_t newest = directory_->newest;
  epoch_ = epoch == 0 && begin != end ? end[-1].epoch : epoch;
  if (epoch != 0) {
    const EpochEntry* found = std::lower_bound(
        begin, end, epoch, [](const EpochEntry& entry, std::uint64_t wanted) { return entry.epoch < wanted; });
    known_ = found != end && found->epoch == epoch;
    if (known_) newest = found->version;
  }
  if (state.ttl_s > 0.0) {
    // Times never fall from version to version, so what has expired is a prefix of them.
    const auto* times = reinterpret_cast<const std::uint32_t*>(at_offset(base, directory_->times));
    const double limit = wall_clock_s() - state.ttl_s;
    oldest_ = static_cast<std::uint32_t>(
        std::upper_bound(times, times + directory_->versions, limit,
                         [](double wanted, std::uint32_t time) { return wanted < static_cast<double>(time); }) - times);
  }
  // With everything expired the range is empty: no version reaches past kVersionMax.
  if (oldest_ > newest) oldest_ = kVersionMax + 1;
  span_ = std::max(newest, oldest_) - oldest_;
  newest_ = newest;
  follows_ = false;
}

void TableView::prefetch_older(std::int64_t id) const noexcept {
  const UndoEntry* undo = directory_->undo_entries();
  for (std::uint32_t i = 0; i < directory_->undos; ++i) {
    if (undo[i].version > newest_) __builtin_prefetch(undo_index(undo[i]).home(id));
  }
}

RowState TableView::as_written(std::int64_t id, RowState state) const noexcept {
  const Directory* directory = directory_;
  while (state.version() > newest_) {
    RowState old;
    const UndoEntry* undo = directory->undo_entries();
    for (std::uint32_t i = 0; i < directory->undos && old.empty(); ++i) {
      if (undo[i].version <= newest_) continue;
      old = undo_index(undo[i]).find(id);
    }
    if (!old.empty()) {
      state = old;
      break;
    }
    // The delta that wrote this state began after this visit. Its undo index was in force before its first state, and
    // stays so for as long as this visit lasts.
    if (!follows_) {
      outdated_ = true;
      return {};
    }
    const Directory* later = directory_of(*state_, base_);
    if (later == directory) return {};
    directory = later;
  }
  return state;
}

RowState TableView::as_of(std::int64_t id, RowState state) const noexcept {
  state = as_written(id, state);
  const bool expired = !state.empty() && state.version() < oldest_;
  return expired ? RowState::absent(state.version()) : state;
}

std::uint32_t TableView::time_s(std::uint32_t version) const noexcept {
  if (directory_->times == 0 || version >= directory_->versions) return 0;
  return reinterpret_cast<const std::uint32_t*>(at_offset(base_, directory_->times))[version];
}

}  // namespace paramserver
