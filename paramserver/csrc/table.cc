#include "paramserver/csrc/table.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

constexpr double kTtlMax_s = 1e9;
constexpr std::uint64_t kAdmitAfterMax = 1'000'000;
// Ids whose slots are fetched ahead of a writer.
constexpr std::size_t kWriteGroup = 32;
// A writer looks for reclaimable rows after this many ids, so that one large update does not double the table, and
// leaves the CPU to whoever waits for it.
constexpr std::size_t kReclaimEvery = 4096;

std::uint32_t checked_dim(const TableOptions& options) {
  if (options.dim < 1 || options.dim > kDimMax) {
    throw OptionError("dim is " + std::to_string(options.dim) + ", expected 1 to " + std::to_string(kDimMax));
  }
  if (options.rows_hint > kRowsMax) {
    throw OptionError("rows_hint is " + std::to_string(options.rows_hint) + ", expected at most " +
                      std::to_string(kRowsMax));
  }
  if (!(options.ttl_s >= 0.0) || options.ttl_s > kTtlMax_s) {
    throw OptionError("ttl_s is " + std::to_string(options.ttl_s) + ", expected 0 (none) to " +
                      std::to_string(kTtlMax_s));
  }
  if (options.admit_after < 1 || options.admit_after > kAdmitAfterMax) {
    throw OptionError("admit_after is " + std::to_string(options.admit_after) + ", expected 1 to " +
                      std::to_string(kAdmitAfterMax));
  }
  if (!(options.apply_rows_per_s >= 0.0)) {
    throw OptionError("apply_rows_per_s is " + std::to_string(options.apply_rows_per_s) + ", expected 0 (no limit) or "
                      "more");
  }
  return options.dim;
}

}  // namespace

Table::Table(TableOptions options)
    : dim_(checked_dim(options)),
      stored_(options.stored),
      huge_pages_(options.huge_pages),
      rows_hint_(options.rows_hint),
      base_sequence_(options.base_sequence),
      ttl_s_(options.ttl_s),
      admit_after_(options.admit_after),
      apply_rows_per_s_(options.apply_rows_per_s),
      kernels_(options.kernels == nullptr ? kernels() : *options.kernels),
      memory_(options.memory == nullptr ? anonymous_memory() : std::move(options.memory)),
      state_region_(sizeof(TableState) + stored_row_bytes(stored_, dim_), false, memory_),
      state_(*new (state_region_.data()) TableState),
      rows_((state_.row_bytes = static_cast<std::uint32_t>(stored_row_bytes(stored_, dim_)), state_),
            options.tier == nullptr ? options.rows_hint : options.tier->rows_ram_max(), options.huge_pages, memory_),
      tier_(std::move(options.tier)),
      reader_(state_, memory_->base(), kernels_, tier_.get()),
      index_(std::make_unique<IdIndex>(options.rows_hint, options.huge_pages, memory_)) {
  state_.dim = dim_;
  state_.stored = stored_;
  state_.ttl_s = ttl_s_;
  state_.default_row = state_region_.offset() + sizeof(TableState);
  if (options.default_row != nullptr) {
    if (!row_fits(stored_, options.default_row, dim_)) {
      throw RowValueError("default_row: " + row_fault(stored_, options.default_row, dim_));
    }
    encode(options.default_row, state_region_.data() + sizeof(TableState));
  }
  applied_.push_back({base_sequence_, kBaseVersion, 0});
  if (keeps_times()) set_base_times(options.base_time_s);
  enforce_directory();
  note_peak();
  if (tier_ != nullptr) tier_->start(*this);
}

Table::~Table() {
  if (tier_ != nullptr) tier_->stop();
}

void Table::encode(const float* row, std::byte* to) const noexcept { kernels_.store(stored_, row, dim_, to); }

void Table::check_rows(const std::int64_t* ids, const float* rows, std::size_t n) const {
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = rows + i * dim_;
    if (row_fits(stored_, row, dim_)) [[likely]] continue;
    throw RowValueError("rows[" + std::to_string(i) + "] (id " + std::to_string(ids[i]) + "): " +
                        row_fault(stored_, row, dim_) + "; nothing of the batch was written");
  }
}

void Table::check_takes_upserts() const {
  if (!base_closed_) return;
  throw EpochError("this table takes deltas: it is at sequence " + std::to_string(applied_.back().sequence) + " with " +
                   std::to_string(epochs_.size()) + " epochs; use apply instead of upsert and delete");
}

std::uint64_t Table::upsert(const std::int64_t* ids, const float* rows, std::size_t n) {
  check_rows(ids, rows, n);
  std::lock_guard<std::mutex> lock(writer_);
  check_takes_upserts();
  const std::uint64_t before = live_;
  reclaim();
  try {
    write_rows({kBaseVersion, nullptr, 0, 1}, ids, rows, n);
  } catch (...) {
    show_rows();
    throw;
  }
  show_rows();
  note_peak();
  return live_ - before;
}

std::uint64_t Table::erase(const std::int64_t* ids, std::size_t n) {
  std::lock_guard<std::mutex> lock(writer_);
  check_takes_upserts();
  const std::uint64_t before = live_;
  reclaim();
  write_deletes({kBaseVersion, nullptr, 0, 1}, ids, n);
  show_rows();
  // Absent ids lengthen every probe for an unknown one; an index of mostly absent ones is built anew. Building reads
  // the whole index, so an index that is nearly empty (a large rows_hint) is left alone: its probes are short.
  const std::uint64_t taken = index_->taken();
  if (taken > 1024 && taken / 4 > live_ && taken > index_->capacity() / 8) rebuild(0);
  return before - live_;
}

void Table::write_rows(const Batch& batch, const std::int64_t* ids, const float* rows, std::size_t n) {
  if (tier_ != nullptr) return write_rows_tiered(batch, ids, rows, n);
  for (std::size_t first = 0; first < n; first += kWriteGroup) {
    if (first % kReclaimEvery == 0) make_room(std::min(kReclaimEvery, n - first));
    const std::size_t end = std::min(n, first + kWriteGroup);
    for (std::size_t i = first; i < end; ++i) __builtin_prefetch(index_->view().home(ids[i]), 1);
    for (std::size_t i = first; i < end; ++i) put(batch, ids[i], rows + i * dim_);
    if (end % kReclaimEvery == 0) give_way(batch, end);
  }
}

// A delta leaves the CPU to whoever waits for it, and memory's bandwidth to readers if it is told how fast to go.
void Table::give_way(const Batch& batch, std::size_t rows) const noexcept {
  if (batch.undo == nullptr) return;
  std::this_thread::yield();
  if (batch.began_ns == 0) return;
  const double due_ns = static_cast<double>(rows) / apply_rows_per_s_ * 1e9;
  const double ahead_ns = due_ns - static_cast<double>(monotonic_ns() - batch.began_ns);
  if (ahead_ns > 0.0) std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(ahead_ns)));
}

void Table::write_deletes(const Batch& batch, const std::int64_t* ids, std::size_t n) {
  for (std::size_t first = 0; first < n; first += kWriteGroup) {
    if (first % kReclaimEvery == 0) reclaim_rows();
    const std::size_t end = std::min(n, first + kWriteGroup);
    for (std::size_t i = first; i < end; ++i) __builtin_prefetch(index_->view().home(ids[i]), 1);
    for (std::size_t i = first; i < end; ++i) {
      IndexSlot& slot = index_->place(ids[i]);
      const RowState state{slot.state.load(std::memory_order_relaxed)};
      // An id that is pending is forgotten too: the deltas that contained it are counted from the start.
      if (state.live() || state.deltas() != 0) change(batch, slot, ids[i], RowState::absent(batch.version));
    }
  }
}

// What an id's state means to a delta of this time: an expired row is as good as none.
RowState Table::current(RowState state, std::uint32_t time_s) const noexcept {
  if (!keeps_times() || state.empty() || time_s == 0) return state;
  const bool expired = written_s(state.version()) + ttl_s_ <= static_cast<double>(time_s);
  return expired ? RowState::absent(state.version()) : state;
}

// Whether a delta stores the row of an id in this state, or only counts that it contained it.
bool Table::stores(const Batch& batch, RowState old) const noexcept {
  const RowState before = current(old, batch.time_s);
  if (before.live() || batch.admit_after <= 1) return true;
  // The same delta counts once, however often it contains the id.
  if (before.deltas() != 0 && before.version() == batch.version) return false;
  return before.deltas() + 1 >= batch.admit_after;
}

void Table::put(const Batch& batch, std::int64_t id, const float* row) {
  IndexSlot& slot = index_->place(id);
  const RowState old{slot.state.load(std::memory_order_relaxed)};
  if (!stores(batch, old)) {
    const RowState before = current(old, batch.time_s);
    if (before.deltas() != 0 && before.version() == batch.version) return;
    return change(batch, slot, id, RowState::pending(before.deltas() + 1, batch.version));
  }
#ifdef PARAMSERVER_BROKEN_UPDATE_IN_PLACE
  // Only the test that proves the concurrency test can fail is built with this: it overwrites what readers read.
  if (old.kind() == RowKind::kRam) return encode(row, rows_.at(old.value()));
#endif
  const RowNumber number = rows_.allocate();
  encode(row, rows_.at(number));
  const RowState now = RowState::of(RowKind::kRam, number, batch.version);
  change(batch, slot, id, now);
  if (tier_ != nullptr) tier_->placed(number, id);
}

// Gives an id a new state. The old one goes to the undo index first, so that a reader who sees the new one finds it; an
// old state that nobody may ask for any more is queued for reclaiming, also first, because a queue may fail to grow and
// a publication cannot be taken back.
void Table::change(const Batch& batch, IndexSlot& slot, std::int64_t id, RowState to) {
  const RowState old{slot.state.load(std::memory_order_relaxed)};
  if (batch.undo != nullptr && (old.empty() || old.version() < batch.version)) {
    batch.undo->insert(batch.undo->place(id), id, old.empty() ? RowState::absent(0) : old);
  } else {
    retire_state(old);
  }
  if (tier_ != nullptr && old.kind() == RowKind::kRam) tier_->shelved(old.value());
  live_ += static_cast<std::uint64_t>(to.live()) - static_cast<std::uint64_t>(old.live());
  pending_ += static_cast<std::uint64_t>(to.deltas() != 0) - static_cast<std::uint64_t>(old.deltas() != 0);
  if (old.empty()) {
    index_->insert(slot, id, to);
  } else {
    slot.state.store(to.word, std::memory_order_seq_cst);
  }
}

std::uint64_t Table::epoch() const noexcept {
  const ReaderGate::Visit visit(state_.gate);
  return TableView(state_, memory_->base(), 0).epoch();
}

void Table::lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
                   RowStatus* status) const noexcept {
  reader_.lookup(context, ids, n, out_type, out, status);
}

void Table::lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                          std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                          RowStatus* status) const noexcept {
  reader_.lookup_pooled(context, ids, offsets, bags, mode, weights, out_type, out, status);
}

void Table::lookup_stored(const LookupContext& context, const std::int64_t* ids, std::size_t n, std::byte* out,
                          RowStatus* status) const noexcept {
  reader_.lookup_stored(context, ids, n, out, status);
}

void Table::default_row(float* out) const noexcept {
  const std::byte* row = reader_.default_row();
  kernels_.copy[static_cast<int>(stored_)][0](&row, 1, dim_, out);
}

}  // namespace paramserver
