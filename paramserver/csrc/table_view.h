// A table as one visit of a reader sees it: the versions that an epoch shows, and every id's state as of then.
//
// Thread-safety: belongs to one visit of the gate, which must outlast it. Ownership: points into the table's memory.
#pragma once

#include <cstdint>

#include "paramserver/csrc/table_state.h"

namespace paramserver {

class TableView {
 public:
  // `epoch` 0 is the newest published, or the base state while none is.
  TableView(const TableState& state, const std::byte* base, std::uint64_t epoch) noexcept;

  // The same of a copy of the directory, `base` and `state` being where other processes write: a state that the copy
  // cannot explain makes the view outdated, instead of looking for a newer directory.
  TableView(const TableState& state, const std::byte* base, const Directory* copy, std::uint64_t epoch) noexcept;
  bool outdated() const noexcept { return outdated_; }

  // Whether the epoch is held here: if not, nothing may be answered from this view.
  bool known() const noexcept { return known_; }
  // The epoch that it shows, 0 for the base state.
  std::uint64_t epoch() const noexcept { return epoch_; }
  const IndexView& index() const noexcept { return index_; }

  // A row in RAM that this view shows as it is: one comparison for both ends of the range of versions.
  bool shows_ram(RowState state) const noexcept {
    return state.kind() == RowKind::kRam && state.version() - oldest_ <= span_;
  }
  // Whether a delta that this view does not show wrote the state: an undo index knows the one before.
  bool is_newer(RowState state) const noexcept { return state.version() > newest_; }
  // Has what as_of reads of an id whose state is newer on its way into the cache.
  void prefetch_older(std::int64_t id) const noexcept;
  // The state of `id` in this view, given the main index's; expired ones are absent.
  RowState as_of(std::int64_t id, RowState state) const noexcept;
  // The same, but expired ones as they were.
  RowState as_written(std::int64_t id, RowState state) const noexcept;

  // When this version was written, seconds since 1970, 0 when nobody says.
  std::uint32_t time_s(std::uint32_t version) const noexcept;

 private:
  IndexView undo_index(const UndoEntry& undo) const noexcept {
    return {reinterpret_cast<const IndexSlot*>(at_offset(base_, undo.slots)), undo.lines};
  }

  const TableState* state_;
  const std::byte* base_;
  const Directory* directory_;
  IndexView index_;
  std::uint32_t oldest_ = 0;  // versions below have expired
  std::uint32_t newest_ = 0;
  std::uint32_t span_ = 0;  // newest - oldest
  std::uint64_t epoch_ = 0;
  bool known_ = true;
  bool follows_ = true;            // looks for a newer directory
  mutable bool outdated_ = false;
};

// Seconds since 1970, at the granularity of the kernel's tick.
double wall_clock_s() noexcept;

}  // namespace paramserver
