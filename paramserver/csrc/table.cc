#include "paramserver/csrc/table.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

// Ids whose slots are fetched ahead of a writer.
constexpr std::size_t kWriteGroup = 32;
// A writer looks for reclaimable rows after this many ids, so that one large update does not double the table.
constexpr std::size_t kReclaimEvery = 4096;
// With this many superseded rows more than live ones, a writer gives way to the readers that hold them up. They may
// be off the CPU in the middle of a visit, and every write until they are back on it would take new memory.
constexpr std::size_t kRetiredSlack = std::size_t{1} << 14;
// The longest that one write gives way, in turns of the scheduler: a reader that never comes back stops nobody.
constexpr int kYieldsMax = 64;

std::uint32_t checked_dim(const TableOptions& options) {
  if (options.dim < 1 || options.dim > kDimMax) {
    throw OptionError("dim is " + std::to_string(options.dim) + ", expected 1 to " + std::to_string(kDimMax));
  }
  if (options.rows_hint > kRowsMax) {
    throw OptionError("rows_hint is " + std::to_string(options.rows_hint) + ", expected at most " +
                      std::to_string(kRowsMax));
  }
  return options.dim;
}

}  // namespace

Table::Table(const TableOptions& options)
    : dim_(checked_dim(options)),
      stored_(options.stored),
      huge_pages_(options.huge_pages),
      rows_hint_(options.rows_hint),
      kernels_(options.kernels == nullptr ? kernels() : *options.kernels),
      rows_(stored_row_bytes(stored_, dim_), options.rows_hint, options.huge_pages),
      default_row_(stored_row_bytes(stored_, dim_)),
      owned_index_(std::make_unique<IdIndex>(options.rows_hint, options.huge_pages)) {
  if (options.default_row != nullptr) {
    if (!row_fits(stored_, options.default_row, dim_)) {
      throw RowValueError("default_row: " + row_fault(stored_, options.default_row, dim_));
    }
    kernels_.store(stored_, options.default_row, dim_, default_row_.data());
  }
  index_.store(owned_index_.get(), std::memory_order_seq_cst);
}

Table::~Table() = default;

void Table::check_rows(const std::int64_t* ids, const float* rows, std::size_t n) const {
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = rows + i * dim_;
    if (row_fits(stored_, row, dim_)) [[likely]] continue;
    throw RowValueError("rows[" + std::to_string(i) + "] (id " + std::to_string(ids[i]) + "): " +
                        row_fault(stored_, row, dim_) + "; nothing of the batch was written");
  }
}

std::uint64_t Table::upsert(const std::int64_t* ids, const float* rows, std::size_t n) {
  check_rows(ids, rows, n);
  std::lock_guard<std::mutex> lock(writer_);
  std::uint64_t added = 0;
  for (std::size_t first = 0; first < n; first += kWriteGroup) {
    if (first % kReclaimEvery == 0) reclaim();
    const std::size_t end = std::min(n, first + kWriteGroup);
    for (std::size_t i = first; i < end; ++i) __builtin_prefetch(owned_index_->home(ids[i]), 1);
    for (std::size_t i = first; i < end; ++i) added += put(ids[i], rows + i * dim_);
  }
  return added;
}

std::uint64_t Table::erase(const std::int64_t* ids, std::size_t n) {
  std::lock_guard<std::mutex> lock(writer_);
  std::uint64_t removed = 0;
  for (std::size_t first = 0; first < n; first += kWriteGroup) {
    if (first % kReclaimEvery == 0) reclaim();
    const std::size_t end = std::min(n, first + kWriteGroup);
    for (std::size_t i = first; i < end; ++i) __builtin_prefetch(owned_index_->home(ids[i]), 1);
    for (std::size_t i = first; i < end; ++i) removed += remove(ids[i]);
  }
  // Deleted slots lengthen every probe for an unknown id; an index of mostly deleted ones is built anew. Building reads
  // the whole index, so an index that is nearly empty (a large rows_hint) is left alone: its probes are short.
  const std::uint64_t taken = owned_index_->taken();
  if (taken > 1024 && taken / 4 > size() && taken > owned_index_->capacity() / 8) rebuild(size());
  return removed;
}

bool Table::put(std::int64_t id, const float* row) {
  if (owned_index_->taken() >= owned_index_->taken_max()) rebuild(size() * 2);
  IdIndex::Slot& slot = owned_index_->place(id);
  const std::uint64_t state = slot.state.load(std::memory_order_relaxed);
#ifdef PARAMSERVER_BROKEN_UPDATE_IN_PLACE
  // Only the test that proves the concurrency test can fail is built with this: it overwrites what readers read.
  const RowNumber number = state >= IdIndex::kFirstRow ? state - IdIndex::kFirstRow : rows_.allocate();
#else
  const RowNumber number = rows_.allocate();
#endif
  kernels_.store(stored_, row, dim_, rows_.at(number));
  const bool added = state < IdIndex::kFirstRow;
  if (!added && state - IdIndex::kFirstRow != number) retire(state - IdIndex::kFirstRow);
  if (state == IdIndex::kEmpty) {
    owned_index_->insert(slot, id, number);
  } else {
    slot.state.store(number + IdIndex::kFirstRow, std::memory_order_seq_cst);
  }
  if (added) live_.store(size() + 1, std::memory_order_relaxed);
  return added;
}

bool Table::remove(std::int64_t id) {
  IdIndex::Slot& slot = owned_index_->place(id);
  const std::uint64_t state = slot.state.load(std::memory_order_relaxed);
  if (state < IdIndex::kFirstRow) return false;
  retire(state - IdIndex::kFirstRow);
  slot.state.store(IdIndex::kDeleted, std::memory_order_seq_cst);
  live_.store(size() - 1, std::memory_order_relaxed);
  return true;
}

// Queues a row that the caller unpublishes next. The queue grows first, because growing may fail and a publication
// cannot be taken back; only the caller moves the turn on, so it is the same before and after.
void Table::retire(RowNumber row) { retired_rows_.push_back({row, gate_.turn()}); }

void Table::rebuild(std::uint64_t rows) {
  auto next = std::make_unique<IdIndex>(std::max(rows, rows_hint_), huge_pages_);
  next->insert_live(*owned_index_);
  RetiredIndex& retired = retired_indexes_.emplace_back();  // may fail, so it comes before readers see the new index
  index_.store(next.get(), std::memory_order_seq_cst);
  retired = {std::move(owned_index_), gate_.turn()};
  owned_index_ = std::move(next);
}

void Table::reclaim() {
  if (retired_rows_.empty() && retired_indexes_.empty()) return;
  reclaim_quiet();
  for (int i = 0; i < kYieldsMax && retired_rows_.size() > size() + kRetiredSlack; ++i) {
    std::this_thread::yield();
    reclaim_quiet();
  }
}

void Table::reclaim_quiet() {
  gate_.try_advance();
  const auto quiet = [now = gate_.turn()](std::uint64_t turn) { return turn + ReaderGate::kTurnsToQuiet <= now; };
  for (; !retired_rows_.empty() && quiet(retired_rows_.front().turn); retired_rows_.pop_front()) {
    rows_.release(retired_rows_.front().row);
  }
  while (!retired_indexes_.empty() && quiet(retired_indexes_.front().turn)) retired_indexes_.pop_front();
}

std::vector<std::int64_t> Table::ids() const {
  std::vector<std::int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(writer_);
    ids.reserve(size());
    for (const IdIndex::Slot& slot : *owned_index_) {
      if (slot.state.load(std::memory_order_relaxed) < IdIndex::kFirstRow) continue;
      ids.push_back(slot.id.load(std::memory_order_relaxed));
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

void Table::default_row(float* out) const noexcept {
  const std::byte* row = default_row_.data();
  kernels_.copy[static_cast<int>(stored_)][0](&row, 1, dim_, out);
}

TableStats Table::stats() const {
  std::lock_guard<std::mutex> lock(writer_);
  return {.rows = size(),
          .rows_retired = retired_rows_.size(),
          .bytes = owned_index_->region().bytes() + rows_.bytes_touched(),
          .huge_pages = owned_index_->region().huge() && rows_.huge(),
          .instruction_set = kernels_.name};
}

}  // namespace paramserver
