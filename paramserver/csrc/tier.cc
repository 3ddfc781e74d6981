// The readers' side of the cold tier, and its thread.
#include "paramserver/csrc/tier.h"

#include <algorithm>
#include <exception>
#include <new>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

// Rows that wait for the keeper, and those that it takes up while it holds the writer's lock.
constexpr std::uint64_t kProposedBytesMax = std::uint64_t{32} << 20;
constexpr std::uint64_t kBatchBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kBatchMax = 8192;

std::uint64_t rows_under(const TierOptions& options, std::size_t row_bytes) {
  const std::uint64_t bytes_per_row = row_bytes + RowClock::kBytesPerRow + 4 * FrequencySketch::kBytesPerId;
  const std::uint64_t rows = options.ram_bytes_max / bytes_per_row;
  if (rows == 0) {
    throw OptionError("ram_bytes_max is " + std::to_string(options.ram_bytes_max) + ", expected room for a row: " +
                      std::to_string(bytes_per_row) + " bytes or more");
  }
  return rows;
}

// How many rows of these there may be in so many bytes, and at most `rows`.
std::uint64_t rows_within(std::uint64_t bytes, std::size_t row_bytes, std::uint64_t rows) {
  return std::clamp<std::uint64_t>(bytes / row_bytes, 2, std::max<std::uint64_t>(rows, 2));
}

}  // namespace

// What a call keeps between its batches.
struct SlotTier::Scratch {
  std::vector<SlotRead> slots;
  ColdReader::Scratch reader;
};

SlotTier::SlotTier(const TierOptions& options, std::size_t row_bytes)
    : options_(options),
      row_bytes_(row_bytes),
      slot_bytes_(sizeof(std::int64_t) + row_bytes),
      batch_max_(rows_within(kBatchBytes, row_bytes, kBatchMax)),
      base_geometry_(SlotGeometry::of(static_cast<std::uint32_t>(row_bytes))),
      spill_({.directory = options.directory, .row_bytes = row_bytes, .bytes_max = options.spill_bytes_max,
              .direct = options.direct}),
      clock_(rows_under(options, row_bytes)),
      queue_(rows_within(kProposedBytesMax, row_bytes, options.proposals_max), row_bytes),
      sketch_(4 * clock_.rows_max()),
      reader_({.depth_max = options.depth_max}) {
  if (!options.base_path.empty()) base_ = open_slots(options.base_path, options.direct, base_direct_);
}

SlotTier::~SlotTier() { stop(); }

std::unique_ptr<ColdTier> make_tier(const std::optional<TierOptions>& options, std::size_t row_bytes) {
  return options ? std::make_unique<SlotTier>(*options, row_bytes) : nullptr;
}

void SlotTier::begin(ColdScratch& scratch) const noexcept {
  scratch.reads_left = options_.cold_reads_max;
  scratch.tier = new (std::nothrow) Scratch;
}

void SlotTier::end(ColdScratch& scratch) const noexcept { delete static_cast<Scratch*>(scratch.tier); }

// A row of the base arrives behind room for an id, so that both kinds of row begin at the same place.
SlotRead SlotTier::slot_read(RowState state, std::byte* to) const noexcept {
  const bool base = state.kind() == RowKind::kBase;
  const SlotGeometry& geometry = base ? base_geometry_ : spill_.geometry();
  return {.fd = base ? base_.get() : spill_.descriptor(),
          .block_bytes = static_cast<std::uint32_t>(geometry.block_bytes()),
          .block_offset = (base ? options_.base_offset : 0) + geometry.block_of(state.value()) * geometry.block_bytes(),
          .offset_in_block = static_cast<std::uint32_t>(geometry.offset_in_block(state.value())),
          .bytes = static_cast<std::uint32_t>(base ? row_bytes_ : slot_bytes_),
          .to = base ? to + sizeof(std::int64_t) : to};
}

void SlotTier::read(const LookupContext& context, ColdRead* reads, std::size_t n,
                    ColdScratch& scratch) const noexcept {
  accesses_.fetch_add(n, std::memory_order_relaxed);
  const std::size_t allowed = std::min(n, scratch.reads_left);
  scratch.reads_left -= allowed;
  for (std::size_t i = allowed; i < n; ++i) reads[i].status = RowStatus::kDeadline;
  auto* own = static_cast<Scratch*>(scratch.tier);
  if (own == nullptr) return;
  try {
    if (scratch.bytes.size() < allowed * slot_bytes_) scratch.bytes.resize(allowed * slot_bytes_);
    own->slots.resize(allowed);
  } catch (const std::bad_alloc&) {
    return;
  }
  for (std::size_t i = 0; i < allowed; ++i) {
    own->slots[i] = slot_read(reads[i].state, scratch.bytes.data() + i * slot_bytes_);
  }
  reader_.read(own->slots.data(), allowed, {context.deadline_ns, context.cancelled}, own->reader);
  for (std::size_t i = 0; i < allowed; ++i) {
    deliver(own->slots[i], reads[i]);
  }
  std::uint64_t over = n - allowed;
  for (std::size_t i = 0; i < allowed; ++i) over += reads[i].status == RowStatus::kDeadline;
  over_.fetch_add(over, std::memory_order_relaxed);
  propose(reads, allowed);
}

void SlotTier::deliver(const SlotRead& slot, ColdRead& read) const noexcept {
  if (slot.outcome != ReadOutcome::kDone) {
    read.status = slot.outcome == ReadOutcome::kUnread ? RowStatus::kDeadline : RowStatus::kUnavailable;
    return;
  }
  const bool spilled = read.state.kind() == RowKind::kSpill;
  if (spilled && SlotFile::id_of(slot.to) != read.id) {
    mismatched_.fetch_add(1, std::memory_order_relaxed);
    read.status = RowStatus::kUnavailable;
    return;
  }
  read.row = spilled ? SlotFile::row_of(slot.to) : slot.to;
  read.status = RowStatus::kCold;
}

void SlotTier::propose(const ColdRead* reads, std::size_t n) const noexcept {
  std::uint64_t proposed = 0;
  std::uint64_t dropped = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (reads[i].row == nullptr) continue;
    ++proposed;
    dropped += !queue_.push({reads[i].id, reads[i].state}, reads[i].row);
  }
  if (proposed == 0) return;
  proposed_.fetch_add(proposed, std::memory_order_relaxed);
  dropped_.fetch_add(dropped, std::memory_order_relaxed);
  wakes_.fetch_add(1, std::memory_order_release);
  wakes_.notify_one();
}

void SlotTier::touched(const RowNumber* rows, std::size_t n) const noexcept {
  accesses_.fetch_add(n, std::memory_order_relaxed);
  for (std::size_t i = 0; i < n; ++i) clock_.touch(rows[i]);
}

void SlotTier::start(Table& table) {
  if (options_.keeper) keeper_ = std::thread([this, &table] { keep(table); });
}

void SlotTier::stop() noexcept {
  stopping_.store(true, std::memory_order_seq_cst);
  wakes_.fetch_add(1, std::memory_order_release);
  wakes_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

void SlotTier::keep(Table& table) {
  std::uint32_t seen = wakes_.load(std::memory_order_acquire);
  while (!stopping_.load(std::memory_order_seq_cst)) {
    const std::uint32_t now = wakes_.load(std::memory_order_acquire);
    if (now == seen) {
      wakes_.wait(seen, std::memory_order_acquire);
      continue;
    }
    seen = now;
    try {
      table.maintain();
    } catch (const std::exception&) {
      // Without memory for a move it is not made: rows stay where they are, and are proposed again.
    }
  }
}

TierStats SlotTier::stats() const noexcept {
  const ColdReaderStats reader = reader_.stats();
  return {.rows_ram = clock_.rows(),
          .rows_ram_max = clock_.rows_max(),
          .rows_cold_read = reader.slots,
          .reads = reader.reads,
          .read_bytes = reader.bytes,
          .reads_failed = reader.slots_failed,
          .reads_mismatched = mismatched_.load(std::memory_order_relaxed),
          .reads_over = over_.load(std::memory_order_relaxed),
          .reads_in_flight = reader.in_flight,
          .proposed = proposed_.load(std::memory_order_relaxed),
          .dropped = dropped_.load(std::memory_order_relaxed),
          .promoted = promoted_,
          .rejected = rejected_,
          .demoted_clean = demoted_clean_,
          .demoted_dirty = demoted_dirty_,
          .spill = spill_.stats(),
          .base_direct = base_direct_,
          .engine = reader_.engine()};
}

}  // namespace paramserver
