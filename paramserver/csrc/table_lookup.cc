// The read path of Table.
//
// A lookup is two dependent cache misses an id: its slot, then its row. Ids go through three stages in small groups:
// hash and fetch the slots; some groups later, find the row numbers and fetch the rows; some groups later, copy.
#include <algorithm>
#include <cstring>
#include <string>

#include "paramserver/csrc/bag_writer.h"
#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

// Small groups mix the three stages finely enough for the CPU to overlap their work; kLag groups lie between two
// stages, so 24 slots and 24 rows are on their way at any moment.
constexpr std::size_t kGroup = 8;
constexpr std::size_t kLag = 3;
constexpr std::size_t kRing = 8;
static_assert(kRing > 2 * kLag);
// Ids between two looks at the deadline and the cancel flag, and the longest that a reader holds reclaiming up.
constexpr std::size_t kVisitIds = 4096;

// Why no more ids may be asked, or kHit when they may.
RowStatus refusal(const LookupContext& context) noexcept {
  // This table has one state, the newest; whoever asks for another epoch must not get it by mistake.
  if (context.epoch != 0) return RowStatus::kUnavailable;
  if (context.cancelled != nullptr && context.cancelled->load(std::memory_order_relaxed)) return RowStatus::kDeadline;
  const bool bounded = context.deadline_ns != std::numeric_limits<std::int64_t>::max();
  return bounded && monotonic_ns() >= context.deadline_ns ? RowStatus::kDeadline : RowStatus::kHit;
}

}  // namespace

template <class Take>
void Table::resolve(const std::int64_t* ids, std::size_t n, RowStatus* status, Take&& take) const noexcept {
  const ReaderGate::Visit visit(gate_);
  const IdIndex& index = *index_.load(std::memory_order_seq_cst);
  const IdIndex::Slot* homes[kRing][kGroup];
  const std::byte* rows[kRing][kGroup];
  const auto size_of = [n](std::size_t group) { return std::min(kGroup, n - group * kGroup); };
  const std::size_t groups = (n + kGroup - 1) / kGroup;
  for (std::size_t step = 0; step < groups + 2 * kLag; ++step) {
    if (step < groups) {
      for (std::size_t i = 0; i < size_of(step); ++i) {
        homes[step % kRing][i] = index.home(ids[step * kGroup + i]);
        __builtin_prefetch(homes[step % kRing][i]);
      }
    }
    if (step >= kLag && step - kLag < groups) {
      const std::size_t group = step - kLag;
      for (std::size_t i = 0; i < size_of(group); ++i) {
        const std::size_t at = group * kGroup + i;
        const std::uint64_t state = index.find(homes[group % kRing][i], ids[at]);
        const bool hit = state >= IdIndex::kFirstRow;
        const std::byte* row = hit ? rows_.at(state - IdIndex::kFirstRow) : default_row_.data();
        rows[group % kRing][i] = row;
        rows_.prefetch(row);
        if (status != nullptr) status[at] = hit ? RowStatus::kHit : RowStatus::kDefault;
      }
    }
    if (step >= 2 * kLag) {
      const std::size_t group = step - 2 * kLag;
      take(rows[group % kRing], group * kGroup, size_of(group));
    }
  }
}

void Table::lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
                   RowStatus* status) const noexcept {
  const Kernels::CopyRows copy = kernels_.copy[static_cast<int>(stored_)][static_cast<int>(out_type)];
  const std::size_t row_bytes = dim_ * row_type_bytes(out_type);
  for (std::size_t first = 0; first < n; first += kVisitIds) {
    const std::size_t count = std::min(kVisitIds, n - first);
    std::byte* to = static_cast<std::byte*>(out) + first * row_bytes;
    const RowStatus why = refusal(context);
    if (why == RowStatus::kHit) {
      resolve(ids + first, count, status == nullptr ? nullptr : status + first,
              [&](const std::byte* const* rows, std::size_t at, std::size_t got) {
                copy(rows, got, dim_, to + at * row_bytes);
              });
      continue;
    }
    const std::byte* row = default_row_.data();
    for (std::size_t i = 0; i < count; ++i) copy(&row, 1, dim_, to + i * row_bytes);
    if (status != nullptr) std::fill_n(status + first, count, why);
  }
}

void Table::lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                          std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                          RowStatus* status) const noexcept {
  if (bags == 0) return;
  const auto n = static_cast<std::size_t>(offsets[bags]);
  BagWriter writer(kernels_, stored_, dim_, offsets, bags, mode, weights, out_type, out);
  for (std::size_t first = 0; first < n; first += kVisitIds) {
    const std::size_t count = std::min(kVisitIds, n - first);
    const RowStatus why = refusal(context);
    if (why == RowStatus::kHit) {
      resolve(ids + first, count, status == nullptr ? nullptr : status + first,
              [&](const std::byte* const* rows, std::size_t at, std::size_t got) {
                writer.take(rows, first + at, got);
              });
      continue;
    }
    const std::byte* row = default_row_.data();
    for (std::size_t i = 0; i < count; ++i) writer.take(&row, first + i, 1);
    if (status != nullptr) std::fill_n(status + first, count, why);
  }
  writer.close();
}

void check_bags(const std::int32_t* offsets, std::size_t bags, std::size_t n) {
  if (offsets[0] != 0) {
    throw BagError("offsets[0] is " + std::to_string(offsets[0]) + ", expected 0");
  }
  for (std::size_t b = 0; b < bags; ++b) {
    if (offsets[b + 1] >= offsets[b]) [[likely]] continue;
    throw BagError("offsets[" + std::to_string(b + 1) + "] is " + std::to_string(offsets[b + 1]) + ", less than " +
                   std::to_string(offsets[b]) + " before it: offsets must never fall");
  }
  if (static_cast<std::size_t>(offsets[bags]) != n) {
    throw BagError("offsets ends at " + std::to_string(offsets[bags]) + ", but there are " + std::to_string(n) +
                   " ids: the last offset must equal the number of ids");
  }
}

}  // namespace paramserver
