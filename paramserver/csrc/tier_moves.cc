// Moves between RAM and the cold tier. All of it runs with the table's writer lock held.
#include <algorithm>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/table.h"
#include "paramserver/csrc/tier.h"

namespace paramserver {
namespace {

// Counts are halved after this many accesses for each row in RAM.
constexpr std::uint64_t kAccessesPerRow = 10;
// Victims that are written and moved out together.
constexpr std::size_t kVictimsMax = 1024;

}  // namespace

void SlotTier::placed(RowNumber row, std::int64_t id) noexcept { clock_.place(row, id, {}, sketch_.count(id) + 1); }

// The row's copy in the spill file, if it has one, goes with it.
void SlotTier::released(RowNumber row) noexcept {
  if (row >= clock_.rows_max()) return;
  const RowState home = clock_.home(row);
  if (home.kind() == RowKind::kSpill) spill_.release(home.value());
  clock_.remove(row);
}

void SlotTier::spill(const std::int64_t* ids, const std::byte* const* rows, std::size_t n, std::uint64_t* slots) {
  spill_.write(ids, rows, n, slots);
}

void SlotTier::make_room(Table& table, std::uint64_t rows) {
  std::uint64_t wanted = rows - std::min(rows, table.rows_ram_free());
  std::vector<RamRow> victims;
  while (wanted != 0) {
    victims.clear();
    while (victims.size() < std::min<std::uint64_t>(wanted, kVictimsMax)) {
      const RowNumber row = clock_.victim();
      if (row == clock_.rows_max()) break;
      clock_.untrack(row);
      victims.push_back({row, clock_.id(row)});
    }
    const std::uint64_t gone = move_out(table, victims);
    if (gone == 0) break;
    wanted -= gone;
  }
  table.reclaim_ram();
}

void SlotTier::make_way(Table& table, const std::vector<RamRow>& rows) {
  for (const RamRow& one : rows) clock_.untrack(one.row);
  move_out(table, rows);
  table.reclaim_ram();
}

// Moves rows out, those that lie in a file already first; returns how many went. Those that the spill file has no room
// for stay, and the clocks of newest rows go on.
std::uint64_t SlotTier::move_out(Table& table, const std::vector<RamRow>& victims) {
  std::vector<RamRow> dirty;
  std::uint64_t gone = 0;
  for (const RamRow& one : victims) {
    const RowState home = clock_.home(one.row);
    if (!home.live()) {
      dirty.push_back(one);
      continue;
    }
    sketch_.raise(one.id, clock_.count(one.row));
    table.move_out(one, home);
    clock_.forget_home(one.row);
    ++demoted_clean_;
    ++gone;
  }
  if (dirty.empty()) return gone;
  std::vector<std::int64_t> ids;
  std::vector<const std::byte*> rows;
  std::vector<SlotNumber> slots(dirty.size());
  for (const RamRow& one : dirty) {
    ids.push_back(one.id);
    rows.push_back(table.ram_row(one.row));
  }
  try {
    spill_.write(ids.data(), rows.data(), dirty.size(), slots.data());
  } catch (const Error&) {
    // No space, or a device that fails: the rows stay where they are, and reads go on.
    for (const RamRow& one : dirty) {
      if (one.undo == nullptr) clock_.track(one.row);
    }
    return gone;
  }
  for (std::size_t i = 0; i < dirty.size(); ++i) {
    sketch_.raise(ids[i], clock_.count(dirty[i].row));
    table.move_out(dirty[i], RowState::of(RowKind::kSpill, slots[i], 0));
  }
  demoted_dirty_ += dirty.size();
  return gone + dirty.size();
}

// One candidate an id, the most asked for first. True when the queue may hold more.
bool SlotTier::take_proposals() {
  candidates_.clear();
  candidate_rows_.resize(batch_max_ * row_bytes_);
  Proposal proposal;
  std::uint32_t row = 0;
  while (row < batch_max_ && queue_.pop(proposal, candidate_rows_.data() + row * row_bytes_)) {
    sketch_.add(proposal.id);
    candidates_.push_back({proposal, 0, row++});
  }
  // Of several the newest, which is the last.
  std::reverse(candidates_.begin(), candidates_.end());
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.proposal.id < b.proposal.id; };
  const auto same = [](const Candidate& a, const Candidate& b) { return a.proposal.id == b.proposal.id; };
  std::stable_sort(candidates_.begin(), candidates_.end(), by_id);
  candidates_.erase(std::unique(candidates_.begin(), candidates_.end(), same), candidates_.end());
  for (Candidate& one : candidates_) one.count = sketch_.count(one.proposal.id);
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.count > b.count; });
  return row == batch_max_;
}

void SlotTier::age() noexcept {
  if (accesses_.load(std::memory_order_relaxed) < kAccessesPerRow * clock_.rows_max()) return;
  accesses_.store(0, std::memory_order_relaxed);
  sketch_.halve();
  clock_.halve();
}

// Moves out what only older epochs read, then what is asked for less often than the candidates; returns for how many of
// them there may be room.
std::size_t SlotTier::make_places(Table& table, std::size_t candidates) {
  std::size_t admitted = std::min<std::size_t>(table.rows_ram_free(), candidates);
  std::vector<RamRow> victims = table.shelved_rows(candidates - admitted);
  admitted += victims.size();
  for (; admitted < candidates; ++admitted) {
    const RowNumber row = clock_.victim();
    if (row == clock_.rows_max()) break;
    if (candidates_[admitted].count <= clock_.count(row)) {
      // Those behind it are asked for no more often.
      rejected_ += candidates - admitted;
      break;
    }
    clock_.untrack(row);
    victims.push_back({row, clock_.id(row)});
  }
  move_out(table, victims);
  table.reclaim_ram();
  return std::min<std::size_t>(admitted, table.rows_ram_free());
}

// A spill slot may have been given to another row since it was read, so these are read again, under the lock.
void SlotTier::reread_spilled(std::size_t candidates) {
  std::vector<SlotRead> slots;
  std::vector<Candidate*> whose;
  std::vector<std::byte> bytes(candidates * slot_bytes_);
  for (std::size_t i = 0; i < candidates; ++i) {
    if (candidates_[i].proposal.state.kind() != RowKind::kSpill) continue;
    whose.push_back(&candidates_[i]);
    slots.push_back(slot_read(candidates_[i].proposal.state, bytes.data() + i * slot_bytes_));
  }
  ColdReader::Scratch scratch;
  reader_.read(slots.data(), slots.size(), {}, scratch);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const bool right = slots[i].outcome == ReadOutcome::kDone && SlotFile::id_of(slots[i].to) == whose[i]->proposal.id;
    if (right) {
      std::copy_n(SlotFile::row_of(slots[i].to), row_bytes_, candidate_rows_.data() + whose[i]->row * row_bytes_);
    } else {
      whose[i]->proposal.state = {};
    }
  }
}

void SlotTier::move_in(Table& table, const Candidate& candidate) {
  const Proposal& proposal = candidate.proposal;
  const RowNumber row = table.move_in(proposal.id, candidate_rows_.data() + candidate.row * row_bytes_);
  clock_.place(row, proposal.id, proposal.state, candidate.count);
  ++promoted_;
}

bool SlotTier::maintain(Table& table) {
  const bool more = take_proposals();
  age();
  // What has changed or moved since it was read is no candidate any more.
  std::erase_if(candidates_, [&](const Candidate& one) { return table.newest(one.proposal.id) != one.proposal.state; });
  const std::size_t places = make_places(table, candidates_.size());
  reread_spilled(places);
  for (std::size_t i = 0; i < places; ++i) {
    if (candidates_[i].proposal.state.live()) move_in(table, candidates_[i]);
  }
  return more;
}

}  // namespace paramserver
