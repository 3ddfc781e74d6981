// What a table with a cold tier does otherwise: where rows are written, and how they move between RAM and files.
#include <algorithm>
#include <cstring>
#include <thread>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

constexpr std::size_t kStagedBytesMax = std::size_t{4} << 20;
constexpr std::size_t kChunkMax = 4096;
// Ids whose slots are fetched ahead.
constexpr std::size_t kAhead = 32;
// Turns of the scheduler that a writer leaves to readers of rows that moved out. What is not free by then is not used.
constexpr int kYields = 16;

}  // namespace

// A chunk's rows as they go to the spill file, in the order of the chunk; RAM takes the others.
struct Table::Spilled {
  std::vector<std::uint32_t> places;  // in the chunk, ascending
  std::vector<std::int64_t> ids;
  std::vector<std::byte> bytes;
  std::vector<const std::byte*> rows;
  std::vector<std::uint64_t> slots;
  std::size_t used = 0;  // slots that the index names by now
};

std::uint64_t Table::rows_ram_free() const noexcept {
  return tier_->rows_ram_max() - std::min(tier_->rows_ram_max(), rows_.in_use());
}

void Table::reclaim_ram() {
  reclaim_quiet();
  for (int i = 0; i < kYields && !retired_rows_.empty(); ++i) {
    const std::uint64_t turn = state_.gate.turn();
    reclaim_quiet();
    if (turn == state_.gate.turn()) std::this_thread::yield();
  }
}

// Rows go to RAM when their id is there already or while RAM has room, and else to the spill file: a delta of rare ids
// leaves alone what is popular, and one of popular ids keeps them in RAM.
void Table::write_rows_tiered(const Batch& batch, const std::int64_t* ids, const float* rows, std::size_t n) {
  const std::size_t chunk = std::clamp<std::size_t>(kStagedBytesMax / row_bytes(), 32, kChunkMax);
  for (std::size_t first = 0; first < n; first += chunk) {
    const std::size_t count = std::min(chunk, n - first);
    make_room(count);
    Spilled spilled = choose_spilled(batch, ids + first, count);
    spill(spilled, ids + first, rows + first * dim_);
    try {
      write_chunk(batch, spilled, ids + first, rows + first * dim_, count);
    } catch (...) {
      for (; spilled.used < spilled.slots.size(); ++spilled.used) tier_->released_slot(spilled.slots[spilled.used]);
      throw;
    }
    give_way(batch, first + count);
  }
}

// Before a batch of `n` rows, some of ids whose rows in RAM are `superseded`. Epochs may be held for long and rows of
// all of them do not fit, so where there is no room for old and new rows, the old ones of a delta go to a file.
void Table::make_ram_room(const Batch& batch, std::vector<RamRow> superseded, std::size_t n) {
  const std::uint64_t free = rows_ram_free();
  if (free >= n || undone_in_force()) return;
  if (batch.undo == nullptr) return tier_->make_room(*this, superseded.size());
  // An id that comes twice has one row.
  std::sort(superseded.begin(), superseded.end(), [](const RamRow& a, const RamRow& b) { return a.row < b.row; });
  const auto same = [](const RamRow& a, const RamRow& b) { return a.row == b.row; };
  superseded.erase(std::unique(superseded.begin(), superseded.end(), same), superseded.end());
  superseded.resize(superseded.size() - std::min<std::size_t>(superseded.size(), free));
  tier_->make_way(*this, superseded);
}

Table::Spilled Table::choose_spilled(const Batch& batch, const std::int64_t* ids, std::size_t n) {
  Spilled spilled;
  std::vector<RamRow> superseded;
  std::vector<bool> in_ram(n);
  for (std::size_t i = 0; i < std::min(n, kAhead); ++i) __builtin_prefetch(index_->view().home(ids[i]));
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(index_->view().home(ids[i + kAhead]));
    const RowState state = newest(ids[i]);
    in_ram[i] = state.kind() == RowKind::kRam;
    if (in_ram[i]) superseded.push_back({state.value(), ids[i]});
  }
  const std::uint64_t hot = superseded.size();
  make_ram_room(batch, std::move(superseded), n);
  std::uint64_t room = rows_ram_free();
  // Room that ids in RAM do not need is for whoever comes first.
  std::uint64_t spare = room - std::min(room, hot);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (!stores(batch, newest(ids[i]))) continue;
    if (room != 0 && (in_ram[i] || spare != 0)) {
      --room;
      if (!in_ram[i]) --spare;
    } else {
      spilled.places.push_back(i);
    }
  }
  return spilled;
}

void Table::spill(Spilled& spilled, const std::int64_t* ids, const float* rows) {
  const std::size_t n = spilled.places.size();
  if (n == 0) return;
  spilled.bytes.resize(n * row_bytes());
  for (std::size_t k = 0; k < n; ++k) {
    std::byte* to = spilled.bytes.data() + k * row_bytes();
    encode(rows + spilled.places[k] * std::size_t{dim_}, to);
    spilled.rows.push_back(to);
    spilled.ids.push_back(ids[spilled.places[k]]);
  }
  std::vector<std::uint64_t> slots(n);
  tier_->spill(spilled.ids.data(), spilled.rows.data(), n, slots.data());
  spilled.slots = std::move(slots);
}

void Table::write_chunk(const Batch& batch, Spilled& spilled, const std::int64_t* ids, const float* rows,
                        std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (spilled.used == spilled.places.size() || spilled.places[spilled.used] != i) {
      put(batch, ids[i], rows + i * dim_);
      continue;
    }
    IndexSlot& slot = index_->place(ids[i]);
    change(batch, slot, ids[i], RowState::of(RowKind::kSpill, spilled.slots[spilled.used], batch.version));
    ++spilled.used;
  }
}

void Table::add_base(const std::int64_t* ids, std::size_t n, std::uint64_t first_slot, const std::uint32_t* times) {
  std::lock_guard<std::mutex> lock(writer_);
  check_takes_upserts();
  if (tier_ == nullptr) throw OptionError("this table has no tier, so it cannot take rows from a base file");
  const Batch batch{kBaseVersion, nullptr, 0, 1};
  for (std::size_t first = 0; first < n; first += kChunkMax) {
    const std::size_t count = std::min(kChunkMax, n - first);
    make_room(count);
    for (std::size_t i = first; i < first + count; ++i) __builtin_prefetch(index_->view().home(ids[i]), 1);
    for (std::size_t i = first; i < first + count; ++i) {
      const std::uint32_t version = times == nullptr ? kBaseVersion : base_version_of(times[i]);
      change(batch, index_->place(ids[i]), ids[i], RowState::of(RowKind::kBase, first_slot + i, version));
    }
  }
  show_rows();
  note_peak();
}

// Stored rows go to RAM while it has room, and then to the spill file.
void Table::load_rows_tiered(const std::int64_t* ids, const std::byte* const* rows, std::size_t n,
                             const std::uint32_t* times) {
  const Batch batch{kBaseVersion, nullptr, 0, 1};
  std::vector<std::uint64_t> slots;
  for (std::size_t first = 0; first < n; first += kChunkMax) {
    const std::size_t end = std::min(n, first + kChunkMax);
    make_room(end - first);
    const std::size_t in_ram = first + std::min<std::size_t>(end - first, rows_ram_free());
    slots.resize(end - in_ram);
    if (in_ram != end) tier_->spill(ids + in_ram, rows + in_ram, end - in_ram, slots.data());
    for (std::size_t i = first; i < end; ++i) {
      const std::uint32_t version = times == nullptr ? kBaseVersion : base_version_of(times[i]);
      IndexSlot& slot = index_->place(ids[i]);
      if (i >= in_ram) {
        change(batch, slot, ids[i], RowState::of(RowKind::kSpill, slots[i - in_ram], version));
        continue;
      }
      const RowNumber number = rows_.allocate();
      std::memcpy(rows_.at(number), rows[i], row_bytes());
      change(batch, slot, ids[i], RowState::of(RowKind::kRam, number, version));
      tier_->placed(number, ids[i]);
    }
  }
  show_rows();
  note_peak();
}

RowState Table::newest(std::int64_t id) const noexcept { return index_->view().find(id); }

// Not while a delta is applied. Each undo index is gone through once, however often this is asked.
std::vector<RamRow> Table::shelved_rows(std::size_t rows_max) {
  std::vector<RamRow> found;
  if (undone_in_force()) return found;
  for (Undo& undo : undos_) {
    if (undo.unneeded) continue;
    const IndexView states = undo.index->view();
    const auto in_ram = [&](std::uint64_t slot) {
      return RowState{states.slots[slot].state.load(std::memory_order_relaxed)}.kind() == RowKind::kRam;
    };
    const std::uint64_t slots = undo.index->capacity();
    while (undo.first_in_ram != slots && !in_ram(undo.first_in_ram)) ++undo.first_in_ram;
    for (std::uint64_t slot = undo.first_in_ram; slot != slots && found.size() != rows_max; ++slot) {
      if (!in_ram(slot)) continue;
      const RowState state{states.slots[slot].state.load(std::memory_order_relaxed)};
      found.push_back({state.value(), states.slots[slot].id.load(std::memory_order_relaxed), undo.index.get()});
    }
  }
  return found;
}

void Table::move_out(const RamRow& row, RowState home) {
  IndexSlot& slot = (row.undo == nullptr ? *index_ : *row.undo).place(row.id);
  const RowState old{slot.state.load(std::memory_order_relaxed)};
  retire_state(old);
  slot.state.store(RowState::of(home.kind(), home.value(), old.version()).word, std::memory_order_seq_cst);
}

RowNumber Table::move_in(std::int64_t id, const std::byte* row) {
  IndexSlot& slot = index_->place(id);
  const RowState old{slot.state.load(std::memory_order_relaxed)};
  const RowNumber number = rows_.allocate();
  std::memcpy(rows_.at(number), row, row_bytes());
  slot.state.store(RowState::of(RowKind::kRam, number, old.version()).word, std::memory_order_seq_cst);
  return number;
}

TierStats Table::tier_stats() const {
  std::lock_guard<std::mutex> lock(writer_);
  return tier_ == nullptr ? TierStats{} : tier_->stats();
}

void Table::maintain() {
  // The lock is let go of between two batches, so that a delta waits for one of them at most.
  for (bool more = tier_ != nullptr; more;) {
    std::lock_guard<std::mutex> lock(writer_);
    reclaim();
    if (undone_in_force()) settle();
    more = !undone_in_force() && tier_->maintain(*this);
  }
}

}  // namespace paramserver
