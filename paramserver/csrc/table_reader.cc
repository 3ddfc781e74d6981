// The read path of a table.
//
// A lookup is two dependent cache misses an id, its slot and its row, and a third for ids that a full line has turned
// away. Ids go through five stages in small groups: hash, and fetch the home line; some groups later, fetch the next
// line if the id must be there; then find the row number, and fetch the row, or the line of the undo index for a row
// that a newer delta wrote; then find and fetch such rows; then copy.
#include "paramserver/csrc/table_reader.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "paramserver/csrc/clock.h"

namespace paramserver {
namespace {

// Small groups mix the stages finely enough for the CPU to overlap their work; kLag groups lie between two stages, so
// 24 lines and 24 rows are on their way at any moment.
constexpr std::size_t kGroup = 8;
constexpr std::size_t kLag = 3;
constexpr std::size_t kRing = 16;
constexpr std::size_t kStages = 5;
static_assert(kRing > (kStages - 1) * kLag);
// Ids between two looks at the deadline and the cancel flag.
constexpr std::size_t kPartIds = 4096;
// Long rows are left to the hardware prefetcher past this: more would push other rows out of L1.
constexpr std::size_t kPrefetchBytesMax = 512;

// Why no more ids may be asked, or kHit when they may.
RowStatus refusal(const LookupContext& context) noexcept {
  if (context.cancelled != nullptr && context.cancelled->load(std::memory_order_relaxed)) return RowStatus::kDeadline;
  const bool bounded = context.deadline_ns != std::numeric_limits<std::int64_t>::max();
  return bounded && monotonic_ns() >= context.deadline_ns ? RowStatus::kDeadline : RowStatus::kHit;
}

class RowPrefetch {
 public:
  explicit RowPrefetch(std::size_t row_bytes) noexcept
      : bytes_(std::min(row_bytes, kPrefetchBytesMax)), last_(row_bytes - 1), tail_(row_bytes % 64 != 0) {}
  // Rows that are no multiple of a cache line may end in one that the loop has not named.
  void operator()(const std::byte* row) const noexcept {
    for (std::size_t byte = 0; byte < bytes_; byte += 64) __builtin_prefetch(row + byte);
    if (tail_) __builtin_prefetch(row + last_);
  }

 private:
  std::size_t bytes_;
  std::size_t last_;
  bool tail_;
};

RowStatus status_without_row(RowState state) noexcept {
  return state.deltas() != 0 ? RowStatus::kFiltered : RowStatus::kDefault;
}

void give(RowStatus* status, std::size_t at, RowStatus value, StatusTally& tally) noexcept {
  if (status != nullptr) status[at] = value;
  ++tally[static_cast<std::size_t>(value)];
}

// A request of several calls reads no more cold rows than one call may: what is left goes from call to call.
void begin_reads(const ColdTier& tier, const LookupContext& context, ColdScratch& scratch) noexcept {
  tier.begin(scratch);
  if (context.cold_reads_left == nullptr) return;
  scratch.reads_left = std::min<std::size_t>(scratch.reads_left, *context.cold_reads_left);
}

void end_reads(const ColdTier& tier, const LookupContext& context, ColdScratch& scratch) noexcept {
  if (context.cold_reads_left != nullptr) *context.cold_reads_left = scratch.reads_left;
  tier.end(scratch);
}

// Room for a batch of a tiered table; false when the system gives no memory.
bool reserve(ColdScratch& scratch, std::size_t n) noexcept {
  try {
    scratch.rows.resize(n);
    scratch.touched.reserve(n);
    scratch.reads.reserve(n);
    scratch.places.reserve(n);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Ids on their way to their rows, a method for each stage but the last. Group g is ids [g * kGroup, (g + 1) * kGroup).
class RowFinder {
 public:
  RowFinder(const TableView& view, const RowsView& rows, const std::byte* default_row, const std::int64_t* ids,
            std::size_t n, RowStatus* status, StatusTally& tally) noexcept
      : view_(view), index_(view.index()), all_rows_(rows), default_row_(default_row), prefetch_(rows.row_bytes),
        ids_(ids), n_(n), status_(status), tally_(tally) {}

  std::size_t groups() const noexcept { return (n_ + kGroup - 1) / kGroup; }
  std::size_t size_of(std::size_t group) const noexcept { return std::min(kGroup, n_ - group * kGroup); }
  const std::byte* const* rows(std::size_t group) const noexcept { return rows_[group % kRing]; }

  void fetch_home_lines(std::size_t group) noexcept {
    for (std::size_t i = 0; i < size_of(group); ++i) {
      lines_[group % kRing][i] = index_.home(ids_[group * kGroup + i]);
      __builtin_prefetch(lines_[group % kRing][i]);
    }
  }

  void fetch_likely_lines(std::size_t group) noexcept {
    for (std::size_t i = 0; i < size_of(group); ++i) {
      const IndexSlot*& line = lines_[group % kRing][i];
      line = index_.likely_line(line, ids_[group * kGroup + i]);
      __builtin_prefetch(line);
    }
  }

  void find_rows(std::size_t group) noexcept {
    std::uint32_t newer = 0;
    for (std::size_t i = 0; i < size_of(group); ++i) {
      const std::size_t at = group * kGroup + i;
      RowState state = index_.find(lines_[group % kRing][i], ids_[at]);
      if (!view_.shows_ram(state)) [[unlikely]] {
        if (view_.is_newer(state)) {
          view_.prefetch_older(ids_[at]);
          newer |= 1u << i;
          newer_states_[group % kRing][i] = state;
          continue;
        }
        state = view_.as_of(ids_[at], state);
      }
      found(group, i, state);
    }
    newer_[group % kRing] = newer;
  }

  void find_older_rows(std::size_t group) noexcept {
    for (std::uint32_t left = newer_[group % kRing]; left != 0; left &= left - 1) {
      const std::size_t i = static_cast<std::size_t>(__builtin_ctz(left));
      found(group, i, view_.as_of(ids_[group * kGroup + i], newer_states_[group % kRing][i]));
    }
  }

 private:
  void found(std::size_t group, std::size_t i, RowState state) noexcept {
    const bool hit = state.kind() == RowKind::kRam;
    const std::byte* row = hit ? all_rows_.at(state.value()) : default_row_;
    rows_[group % kRing][i] = row;
    prefetch_(row);
    give(status_, group * kGroup + i, hit ? RowStatus::kHit : status_without_row(state), tally_);
  }

  const TableView& view_;
  const IndexView index_;
  const RowsView all_rows_;
  const std::byte* const default_row_;
  const RowPrefetch prefetch_;
  const std::int64_t* const ids_;
  const std::size_t n_;
  RowStatus* const status_;
  StatusTally& tally_;
  const IndexSlot* lines_[kRing][kGroup];
  const std::byte* rows_[kRing][kGroup];
  RowState newer_states_[kRing][kGroup];
  std::uint32_t newer_[kRing];  // bit i: id i of the group has been written by a delta that the view does not show
};

}  // namespace

template <class Take>
void TableReader::resolve(const TableView& view, const std::int64_t* ids, std::size_t n, RowStatus* status,
                          StatusTally& tally, Take&& take) const noexcept {
  RowFinder finder(view, rows(), default_row(), ids, n, status, tally);
  const std::size_t groups = finder.groups();
  for (std::size_t step = 0; step < groups + (kStages - 1) * kLag; ++step) {
    // The stages that a step reaches, each kLag groups behind the one before it; beyond the ends they do nothing.
    const auto at_stage = [&](std::size_t stage) { return step - stage * kLag; };
    if (step < groups) finder.fetch_home_lines(step);
    if (const std::size_t group = at_stage(1); group < groups) finder.fetch_likely_lines(group);
    if (const std::size_t group = at_stage(2); group < groups) finder.find_rows(group);
    if (const std::size_t group = at_stage(3); group < groups) finder.find_older_rows(group);
    if (const std::size_t group = at_stage(4); group < groups) {
      take(finder.rows(group), group * kGroup, finder.size_of(group));
    }
  }
}

template <class Take>
void TableReader::resolve_cold(const LookupContext& context, const TableView& view, const std::int64_t* ids,
                               std::size_t n, RowStatus* status, StatusTally& tally, ColdScratch& scratch,
                               Take&& take) const noexcept {
  const IndexView index = view.index();
  const RowsView all_rows = rows();
  scratch.touched.clear();
  scratch.reads.clear();
  scratch.places.clear();
  constexpr std::size_t kAhead = kGroup * kLag;
  for (std::size_t i = 0; i < std::min(n, kAhead); ++i) __builtin_prefetch(index.home(ids[i]));
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(index.home(ids[i + kAhead]));
    const RowState state = view.as_of(ids[i], index.find(ids[i]));
    scratch.rows[i] = default_row();
    if (state.kind() == RowKind::kRam) {
      scratch.rows[i] = all_rows.at(state.value());
      scratch.touched.push_back(state.value());
      give(status, i, RowStatus::kHit, tally);
    } else if (state.live()) {
      scratch.reads.push_back({ids[i], state});
      scratch.places.push_back(static_cast<std::uint32_t>(i));
    } else {
      give(status, i, status_without_row(state), tally);
    }
  }
  if (!scratch.touched.empty()) tier_->touched(scratch.touched.data(), scratch.touched.size());
  if (!scratch.reads.empty()) tier_->read(context, scratch.reads.data(), scratch.reads.size(), scratch);
  for (std::size_t k = 0; k < scratch.reads.size(); ++k) {
    const ColdRead& read = scratch.reads[k];
    if (read.row != nullptr) scratch.rows[scratch.places[k]] = read.row;
    give(status, scratch.places[k], read.status, tally);
  }
  const RowPrefetch prefetch(state_.row_bytes);
  for (std::size_t i = 0; i < std::min(n, kAhead); ++i) prefetch(scratch.rows[i]);
  for (std::size_t i = 0; i < n; i += kGroup) {
    const std::size_t count = std::min(kGroup, n - i);
    for (std::size_t j = i + kAhead; j < std::min(n, i + kAhead + count); ++j) prefetch(scratch.rows[j]);
    take(&scratch.rows[i], i, count);
  }
}

template <class Take>
void TableReader::each(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowStatus* status,
                       Take&& take) const noexcept {
  StatusTally tally{};
  ColdScratch scratch;
  const bool tiered = tier_ != nullptr;
  const std::size_t part_ids = tiered ? cold_visit_ids(state_.row_bytes) : kPartIds;
  const bool room = !tiered || reserve(scratch, std::min(n, part_ids));
  if (tiered) begin_reads(*tier_, context, scratch);
  // One view for the whole call, so that no call is answered from two epochs, whoever publishes and retires meanwhile.
  const ReaderGate::Visit visit(state_.gate);
  const TableView view(state_, base_, context.epoch);
  for (std::size_t first = 0; first < n; first += part_ids) {
    const std::size_t count = std::min(part_ids, n - first);
    RowStatus* const part = status == nullptr ? nullptr : status + first;
    const auto take_part = [&](const std::byte* const* rows, std::size_t at, std::size_t got) {
      take(rows, first + at, got);
    };
    const RowStatus why = room && view.known() ? refusal(context) : RowStatus::kUnavailable;
    if (why == RowStatus::kHit && tiered) {
      resolve_cold(context, view, ids + first, count, part, tally, scratch, take_part);
    } else if (why == RowStatus::kHit) {
      resolve(view, ids + first, count, part, tally, take_part);
    }
    if (why == RowStatus::kHit) continue;
    const std::byte* const row = default_row();
    for (std::size_t i = 0; i < count; ++i) take(&row, first + i, 1);
    for (std::size_t i = 0; i < count; ++i) give(part, i, why, tally);
  }
  if (tiered) end_reads(*tier_, context, scratch);
  counters_.add(tally);
}

void TableReader::lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type,
                         void* out, RowStatus* status) const noexcept {
  const Kernels::CopyRows copy = kernels_.copy[static_cast<int>(state_.stored)][static_cast<int>(out_type)];
  const std::size_t row_bytes = state_.dim * row_type_bytes(out_type);
  each(context, ids, n, status, [&](const std::byte* const* rows, std::size_t first, std::size_t count) {
    copy(rows, count, state_.dim, static_cast<std::byte*>(out) + first * row_bytes);
  });
}

void TableReader::lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                                std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                                RowStatus* status) const noexcept {
  if (bags == 0) return;
  BagWriter writer(kernels_, state_.stored, state_.dim, offsets, bags, mode, weights, out_type, out);
  each(context, ids, static_cast<std::size_t>(offsets[bags]), status,
       [&](const std::byte* const* rows, std::size_t first, std::size_t count) { writer.take(rows, first, count); });
  writer.close();
}

void TableReader::lookup_stored(const LookupContext& context, const std::int64_t* ids, std::size_t n, std::byte* out,
                                RowStatus* status) const noexcept {
  const std::size_t row_bytes = state_.row_bytes;
  each(context, ids, n, status, [&](const std::byte* const* rows, std::size_t first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) std::memcpy(out + (first + i) * row_bytes, rows[i], row_bytes);
  });
}

}  // namespace paramserver
