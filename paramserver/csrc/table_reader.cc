// The read path of a table.
//
// A lookup is two dependent cache misses an id, its slot and its row, and a third for ids that a full line has turned
// away. Ids go through four stages in small groups: hash, and fetch the home line; some groups later, fetch the next
// line if the id must be there; then find the row number, and fetch the row; then copy.
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
static_assert(kRing > 3 * kLag);
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

}  // namespace

template <class Take>
void TableReader::resolve(const TableView& view, const std::int64_t* ids, std::size_t n, RowStatus* status,
                          StatusTally& tally, Take&& take) const noexcept {
  const IndexView index = view.index();
  const RowsView all_rows = rows();
  const RowPrefetch prefetch(state_.row_bytes);
  const IndexSlot* lines[kRing][kGroup];
  const std::byte* rows[kRing][kGroup];
  const auto size_of = [n](std::size_t group) { return std::min(kGroup, n - group * kGroup); };
  const std::size_t groups = (n + kGroup - 1) / kGroup;
  for (std::size_t step = 0; step < groups + 3 * kLag; ++step) {
    if (step < groups) {
      for (std::size_t i = 0; i < size_of(step); ++i) {
        lines[step % kRing][i] = index.home(ids[step * kGroup + i]);
        __builtin_prefetch(lines[step % kRing][i]);
      }
    }
    if (const std::size_t group = step - kLag; step >= kLag && group < groups) {
      for (std::size_t i = 0; i < size_of(group); ++i) {
        const IndexSlot*& line = lines[group % kRing][i];
        line = index.likely_line(line, ids[group * kGroup + i]);
        __builtin_prefetch(line);
      }
    }
    if (const std::size_t group = step - 2 * kLag; step >= 2 * kLag && group < groups) {
      for (std::size_t i = 0; i < size_of(group); ++i) {
        const std::size_t at = group * kGroup + i;
        RowState state = index.find(lines[group % kRing][i], ids[at]);
        if (!view.shows_ram(state)) [[unlikely]] state = view.as_of(ids[at], state);
        const bool hit = state.kind() == RowKind::kRam;
        const std::byte* row = hit ? all_rows.at(state.value()) : default_row();
        rows[group % kRing][i] = row;
        prefetch(row);
        give(status, at, hit ? RowStatus::kHit : status_without_row(state), tally);
      }
    }
    if (step >= 3 * kLag) {
      const std::size_t group = step - 3 * kLag;
      take(rows[group % kRing], group * kGroup, size_of(group));
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
