// Memory of a table: what is in force, what readers may still hold, and what comes back into use.
#include <algorithm>
#include <thread>

#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

// With this many superseded rows more than live ones, a writer gives way to the readers that hold them up. They may
// be off the CPU in the middle of a visit, and every write until they are back on it would take new memory.
constexpr std::size_t kRetiredSlack = std::size_t{1} << 14;
// The longest that one write gives way, in turns of the scheduler: a reader that never comes back stops nobody.
constexpr int kYieldsMax = 64;

}  // namespace

// Queues a state that the caller unpublishes next. Only the caller moves the turn on, so it is the same before and
// after.
void Table::retire_state(RowState state) {
  if (state.live()) retired_rows_.push_back({state, state_.gate.turn()});
}

// Frees the row of a state that no reader can hold.
void Table::release_state(RowState state) noexcept {
  if (state.kind() == RowKind::kRam) {
    rows_.release(state.value());
    if (tier_ != nullptr) tier_->released(state.value());
  } else if (state.kind() == RowKind::kSpill && tier_ != nullptr) {
    tier_->released_slot(state.value());
  }
}

// Before `ids` ids are written: room in the index for as many new ones, and whatever is free again.
void Table::make_room(std::uint64_t ids) {
  if (index_->taken() + ids > index_->taken_max()) rebuild(ids);
  reclaim_rows();
}

// Builds the index anew, with room for `ids` more and for a quarter more than is in it: live and pending ids, and
// absent ones that an older epoch must be sent from to an undo index.
void Table::rebuild(std::uint64_t ids) {
  const std::uint32_t oldest = oldest_shown();
  const auto stays = [oldest](RowState state) {
    return state.live() || state.deltas() != 0 || (!state.empty() && state.version() > oldest);
  };
  std::uint64_t rows = 0;
  for (const IndexSlot& slot : index_->view()) rows += stays({slot.state.load(std::memory_order_relaxed)});
  rows = std::max({IdIndex::grown(rows), rows + ids, rows_hint_});
  auto next = std::make_unique<IdIndex>(rows, huge_pages_, memory_);
  for (const IndexSlot& slot : index_->view()) {
    const RowState state{slot.state.load(std::memory_order_relaxed)};
    if (!stays(state)) continue;
    const std::int64_t id = slot.id.load(std::memory_order_relaxed);
    next->insert(next->place(id), id, state);
  }
  Retired& old = retired_.emplace_back();  // may fail, so it comes before readers see the new index
  index_.swap(next);
  try {
    enforce_directory();
  } catch (...) {
    index_.swap(next);
    retired_.pop_back();
    throw;
  }
  old = {state_.gate.turn(), std::move(next), Region(), false};
  note_peak();
}

// Puts the members in force for readers. They see all of it or the one before.
void Table::enforce_directory() {
  std::vector<EpochEntry> epochs;
  for (const Epoch& one : epochs_) epochs.push_back({one.epoch, applied(one.sequence).rows, one.version, 0});
  std::vector<UndoEntry> undos;
  for (const Undo& one : undos_) {
    if (one.unlinked) continue;
    undos.push_back({one.index->region().offset(), one.index->view().lines, one.version, 0});
  }
  const std::size_t bytes =
      sizeof(Directory) + epochs.size() * sizeof(EpochEntry) + undos.size() * sizeof(UndoEntry);
  Region region(bytes, false, memory_);
  auto* next = new (region.data()) Directory{
      .slots = index_->region().offset(),
      .lines = index_->view().lines,
      .times = keeps_times() ? times_.offset() : 0,
      .versions = versions_,
      .newest = epochs_.empty() ? kBaseVersion : epochs_.back().version,
      .epochs = static_cast<std::uint32_t>(epochs.size()),
      .undos = static_cast<std::uint32_t>(undos.size())};
  std::copy(epochs.begin(), epochs.end(), next->epoch_entries());
  std::copy(undos.begin(), undos.end(), next->undo_entries());
  retired_.emplace_back();  // may fail, so both come before readers see the new directory
  retired_.emplace_back();
  state_.directory.store(region.offset(), std::memory_order_seq_cst);
  std::swap(directory_, region);
  retired_.end()[-2] = {state_.gate.turn(), nullptr, std::move(region), false};
  retired_.end()[-1] = {state_.gate.turn(), nullptr, std::move(superseded_times_), false};
}

void Table::reclaim() {
  reclaim_rows();
  const auto quiet = [now = state_.gate.turn()](std::uint64_t turn) { return turn + ReaderGate::kTurnsToQuiet <= now; };
  bool unlinked = false;
  for (Undo& undo : undos_) {
    if (undo.unlinked || !undo.unneeded || !quiet(*undo.unneeded)) continue;
    undo.unlinked = unlinked = true;
  }
  if (!unlinked) return;
  enforce_directory();
  for (auto undo = undos_.begin(); undo != undos_.end();) {
    if (!undo->unlinked) {
      ++undo;
      continue;
    }
    retired_.push_back({state_.gate.turn(), std::move(undo->index), Region(), !undo->reverted});
    undo = undos_.erase(undo);
  }
}

// As reclaim, until nothing is left to wait for or a reader holds it up.
void Table::settle() {
  const auto waits = [this] {
    const auto unneeded = [](const Undo& undo) { return undo.unneeded.has_value(); };
    return !retired_.empty() || std::any_of(undos_.begin(), undos_.end(), unneeded);
  };
  for (std::uint64_t turn = 0; waits() && turn != state_.gate.turn();) {
    turn = state_.gate.turn();
    reclaim();
  }
}

void Table::reclaim_rows() {
  if (retired_rows_.empty() && retired_.empty() && undos_.empty()) return;
  reclaim_quiet();
  for (int i = 0; i < kYieldsMax && retired_rows_.size() > live_ + kRetiredSlack; ++i) {
    std::this_thread::yield();
    reclaim_quiet();
  }
}

// Moves the gate's turn on, unless readers hold it up or, of a shared table, may still need the time.
bool Table::advance_turn() noexcept {
  const std::int64_t least_ns = memory_->turn_min_ns();
  const std::int64_t now_ns = least_ns == 0 ? 0 : monotonic_ns();
  if (now_ns - turn_began_ns_ < least_ns || !state_.gate.try_advance()) return false;
  turn_began_ns_ = now_ns;
  // What is used again from now on is written after the new turn can be seen.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return true;
}

void Table::reclaim_quiet() {
  advance_turn();
  const auto quiet = [now = state_.gate.turn()](std::uint64_t turn) { return turn + ReaderGate::kTurnsToQuiet <= now; };
  for (; !retired_rows_.empty() && quiet(retired_rows_.front().turn); retired_rows_.pop_front()) {
    release_state(retired_rows_.front().state);
  }
  for (; !retired_.empty() && quiet(retired_.front().turn); retired_.pop_front()) {
    if (!retired_.front().frees_rows) continue;
    for (const IndexSlot& slot : retired_.front().index->view()) {
      release_state({slot.state.load(std::memory_order_relaxed)});
    }
  }
}

// Live ids that epoch 0 shows.
void Table::show_rows() {
  if (!base_closed_) applied_.front().rows = live_;
  const Applied& shown = epochs_.empty() ? applied_.front() : applied(epochs_.back().sequence);
  visible_rows_.store(shown.rows, std::memory_order_relaxed);
}

// When a version was written: never earlier than the versions before it, so that what has expired is a prefix.
std::uint32_t Table::set_time(std::uint32_t version, std::uint32_t time_s) {
  const auto* times = reinterpret_cast<const std::uint32_t*>(times_.data());
  const std::uint32_t before = applied_.back().version;
  // Without a row in the base state, its time holds nothing up.
  const bool bare = before == kBaseVersion && live_ == 0;
  const std::uint32_t time = bare ? time_s : std::max(time_s, times[before]);
  const std::uint32_t previous = std::min(time, times[before]);
  std::size_t room = times_.bytes() / sizeof(std::uint32_t);
  if (version >= room || version < versions_ || bare) {
    // A version that failed or was undone has a time already, which readers may be looking at.
    while (version >= room) room *= 2;
    Region region(room * sizeof(std::uint32_t), false, memory_);
    auto* copies = reinterpret_cast<std::uint32_t*>(region.data());
    std::transform(times, times + before + 1, copies, [time](std::uint32_t one) { return std::min(one, time); });
    // Times that were never in force are of no use to a reader.
    if (superseded_times_.data() == nullptr) superseded_times_ = std::move(times_);
    times_ = std::move(region);
  }
  auto* to = reinterpret_cast<std::uint32_t*>(times_.data());
  for (std::uint32_t skipped = before + 1; skipped < version; ++skipped) to[skipped] = previous;
  to[version] = time;
  versions_ = version + 1;
  return time;
}

void Table::set_base_times(std::uint32_t base_time_s) {
  times_ = Region(4096, false, memory_);
  auto* times = reinterpret_cast<std::uint32_t*>(times_.data());
  for (std::uint32_t age = 0; age <= kBaseVersion; ++age) {
    const double time = base_time_s - ttl_s_ + ttl_s_ * age / kBaseVersion;
    times[age] = time > 0.0 ? static_cast<std::uint32_t>(time) : 0;
  }
  versions_ = kBaseVersion + 1;
}

double Table::written_s(std::uint32_t version) const noexcept {
  return reinterpret_cast<const std::uint32_t*>(times_.data())[version];
}

std::uint64_t Table::bytes_undo() const noexcept {
  std::uint64_t bytes = 0;
  for (const Undo& undo : undos_) bytes += undo.index->region().bytes();
  return bytes;
}

std::uint64_t Table::bytes_index() const noexcept {
  std::uint64_t bytes = index_->region().bytes() + retired_rows_.size() * sizeof(RetiredRow);
  for (const Retired& one : retired_) bytes += one.region.bytes() + (one.index ? one.index->region().bytes() : 0);
  return bytes + directory_.bytes() + times_.bytes() + state_region_.bytes();
}

void Table::note_peak() {
  bytes_peak_ = std::max(bytes_peak_, bytes_index() + bytes_undo() + rows_.bytes());
}

}  // namespace paramserver
