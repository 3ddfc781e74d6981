// Deltas and epochs of a table.
#include <algorithm>
#include <string>
#include <thread>

#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/table.h"

namespace paramserver {

void Table::apply(std::int64_t sequence, std::int64_t after, const std::int64_t* ids, const float* rows,
                  std::size_t n, const std::int64_t* deletes, std::size_t m, std::uint32_t time_s) {
  check_rows(ids, rows, n);
  std::lock_guard<std::mutex> lock(writer_);
  const std::int64_t last = applied_.back().sequence;
  if (after != last || sequence <= after) {
    throw EpochError("delta " + std::to_string(sequence) + " builds on sequence " + std::to_string(after) +
                     ", but the table is at " + std::to_string(last) + ": expected sequence " +
                     std::to_string(last + 1));
  }
  const std::int64_t version = sequence - base_sequence_ + kBaseVersion;
  if (version > kVersionMax) {
    throw EpochError("sequence " + std::to_string(sequence) + " is too far from the base sequence " +
                     std::to_string(base_sequence_) + ": load a newer snapshot");
  }
  reclaim();
  if (undone_in_force()) settle();
  applied_.reserve(applied_.size() + 1);
  const bool first = !base_closed_;
  Batch batch{static_cast<std::uint32_t>(version), nullptr, time_s, admit_after_};
  if (keeps_times()) batch.time_s = set_time(batch.version, time_s);
  if (apply_rows_per_s_ > 0.0) batch.began_ns = monotonic_ns();
  undos_.push_back({std::make_unique<IdIndex>(n + m, huge_pages_, memory_), batch.version});
  batch.undo = undos_.back().index.get();
  try {
    base_closed_ = true;
    // In force before the first state that it undoes.
    enforce_directory();
    write_rows(batch, ids, rows, n);
    write_deletes(batch, deletes, m);
  } catch (...) {
    undo_back();
    if (first) base_closed_ = false;
    throw;
  }
  applied_.push_back({sequence, batch.version, live_});
  note_peak();
}

void Table::publish(std::uint64_t epoch, std::int64_t sequence) {
  std::lock_guard<std::mutex> lock(writer_);
  const Applied& shown = applied(sequence);
  for (const Epoch& held : epochs_) {
    if (held.epoch == epoch && held.sequence == sequence) return;
  }
  if (epoch <= newest_epoch_) {
    throw EpochError("epoch " + std::to_string(epoch) + " cannot be published after epoch " +
                     std::to_string(newest_epoch_) + ": expected a larger number");
  }
  reclaim();
  epochs_.push_back({epoch, sequence, shown.version});
  try {
    enforce_directory();
  } catch (...) {
    epochs_.pop_back();
    throw;
  }
  newest_epoch_ = epoch;
  base_closed_ = true;
  show_rows();
  drop_unneeded_undos();
  settle();
}

void Table::retire(std::uint64_t epoch) {
  std::lock_guard<std::mutex> lock(writer_);
  const auto found = std::find_if(epochs_.begin(), epochs_.end(), [&](const Epoch& e) { return e.epoch == epoch; });
  if (found == epochs_.end()) throw unknown_epoch(epoch);
  if (found + 1 == epochs_.end()) {
    throw EpochError("epoch " + std::to_string(epoch) + " is the newest, which lookups without an epoch read: publish "
                     "another before it is retired");
  }
  const Epoch retired = *found;
  const auto at = epochs_.erase(found);
  try {
    enforce_directory();
  } catch (...) {
    epochs_.insert(at, retired);
    throw;
  }
  drop_unneeded_undos();
  settle();
}

void Table::revert(std::int64_t sequence) {
  std::lock_guard<std::mutex> lock(writer_);
  const Applied target = applied(sequence);
  for (const Epoch& held : epochs_) {
    if (held.version <= target.version) continue;
    throw EpochError("cannot revert to sequence " + std::to_string(sequence) + ": epoch " +
                     std::to_string(held.epoch) + " still shows sequence " + std::to_string(held.sequence));
  }
  // Readers of an epoch that was retired just now may still be at what is about to be undone.
  wait_for_readers();
  reclaim();
  while (applied_.back().version > target.version) {
    undo_back();
    applied_.pop_back();
  }
  wait_for_readers();
  settle();
}

// Puts back the states before the newest delta, or before what there is of one that failed.
void Table::undo_back() noexcept {
  const auto undo = std::find_if(undos_.rbegin(), undos_.rend(), [](const Undo& u) { return !u.reverted; });
  const IndexView states = undo->index->view();
  for (const IndexSlot& slot : states) {
    const RowState old{slot.state.load(std::memory_order_relaxed)};
    if (old.empty()) continue;
    const std::int64_t id = slot.id.load(std::memory_order_relaxed);
    IndexSlot& main = index_->place(id);
    const RowState now{main.state.load(std::memory_order_relaxed)};
    if (now.empty() || now == old) continue;
    main.state.store(old.word, std::memory_order_seq_cst);
    retire_state(now);
    if (tier_ != nullptr && now.kind() == RowKind::kRam) tier_->shelved(now.value());
    if (tier_ != nullptr && old.kind() == RowKind::kRam) tier_->restored(old.value());
    pending_ += static_cast<std::uint64_t>(old.deltas() != 0) - static_cast<std::uint64_t>(now.deltas() != 0);
    live_ += static_cast<std::uint64_t>(old.live()) - static_cast<std::uint64_t>(now.live());
  }
  undo->reverted = true;
  undo->unneeded = state_.gate.turn();
}

// Whether readers may still be sent to the undo index of a delta that was undone, whose rows are the main index's too:
// until then they stay where they are.
bool Table::undone_in_force() const noexcept {
  return std::any_of(undos_.begin(), undos_.end(), [](const Undo& undo) { return undo.reverted; });
}

// An undo index is of use to epochs before its delta. Those that no epoch needs stay in force until no reader that
// began before is left.
void Table::drop_unneeded_undos() noexcept {
  const std::uint32_t oldest = oldest_shown();
  for (Undo& undo : undos_) {
    if (undo.version <= oldest && !undo.unneeded) undo.unneeded = state_.gate.turn();
  }
  const auto kept =
      std::find_if(applied_.begin(), applied_.end(), [oldest](const Applied& a) { return a.version >= oldest; });
  applied_.erase(applied_.begin(), kept);
}

std::uint32_t Table::oldest_shown() const noexcept {
  if (epochs_.empty()) return kBaseVersion;
  return std::min_element(epochs_.begin(), epochs_.end(), [](const Epoch& a, const Epoch& b) {
           return a.version < b.version;
         })->version;
}

void Table::wait_for_readers() noexcept {
  const std::uint64_t quiet = state_.gate.turn() + ReaderGate::kTurnsToQuiet;
  while (state_.gate.turn() < quiet) {
    if (!advance_turn()) std::this_thread::yield();
  }
}

const Table::Applied& Table::applied(std::int64_t sequence) const {
  for (const Applied& one : applied_) {
    if (one.sequence == sequence) return one;
  }
  throw EpochError("the table does not hold sequence " + std::to_string(sequence) + ": it holds " +
                   std::to_string(applied_.front().sequence) + " to " + std::to_string(applied_.back().sequence));
}

EpochError Table::unknown_epoch(std::uint64_t epoch) const {
  std::string held;
  for (const Epoch& one : epochs_) held += (held.empty() ? "" : ", ") + std::to_string(one.epoch);
  return EpochError("the table does not hold epoch " + std::to_string(epoch) + ": it holds " +
                    (held.empty() ? "none" : held));
}

std::int64_t Table::sequence() const {
  std::lock_guard<std::mutex> lock(writer_);
  return applied_.back().sequence;
}

std::vector<std::pair<std::uint64_t, std::int64_t>> Table::epochs() const {
  std::lock_guard<std::mutex> lock(writer_);
  std::vector<std::pair<std::uint64_t, std::int64_t>> all;
  for (const Epoch& one : epochs_) all.emplace_back(one.epoch, one.sequence);
  return all;
}

}  // namespace paramserver
