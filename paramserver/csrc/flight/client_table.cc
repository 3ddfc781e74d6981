#include "paramserver/csrc/flight/client_table.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "paramserver/csrc/bag_writer.h"
#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/error.h"

namespace paramserver::flight {
namespace {

constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();
// Ids that are asked together, and the bytes of their rows: these bound the memory of a call.
constexpr std::size_t kIdsTogether = std::size_t{1} << 18;
constexpr std::size_t kBytesTogether = std::size_t{64} << 20;
static_assert(kIdsTogether <= kIdsPerLookupMax);
// Rows handed to a kernel at once, and how far ahead of them rows are fetched.
constexpr std::size_t kGroup = 32;
constexpr std::size_t kScratchKept = 16;
constexpr std::int64_t kMs = 1'000'000;
// The first wait for another map, once a shard has said that there is one; it doubles.
constexpr std::int64_t kMapPauseNs = 10 * kMs;

std::uint32_t checked_dim(std::uint32_t dim) {
  if (dim >= 1 && dim <= kDimMax) return dim;
  throw OptionError("dim is " + std::to_string(dim) + ", expected 1 to " + std::to_string(kDimMax));
}

std::string checked_name(const std::string& name) {
  if (!name.empty() && name.size() <= 255) return name;
  throw OptionError("name has " + std::to_string(name.size()) + " bytes, expected 1 to 255");
}

}  // namespace

struct RemoteTable::Scratch {
  Router router;
  Routes routes;
  std::vector<PartAnswer> answers;
  std::vector<const std::byte*> rows;  // of each unique id, by its number
  std::vector<RowStatus> status;       // likewise
};

RemoteTable::RemoteTable(std::shared_ptr<Cluster> cluster, const RemoteTableOptions& options)
    : cluster_(std::move(cluster)),
      use_(cluster_->use()),
      kernels_(kernels()),
      name_(checked_name(options.name)),
      dim_(checked_dim(options.dim)),
      wire_(options.wire),
      row_bytes_(wire_row_bytes(options.wire, options.dim)),
      deadline_ns_(std::int64_t{options.deadline_ms} * 1'000'000),
      call_(options.call),
      default_row_(row_bytes_),
      pace_(options.hedge_ms) {
  if (options.default_row == nullptr) return;
  store_rows(kernels_, static_cast<Stored>(wire_), options.default_row, 1, dim_, default_row_.data());
}

RemoteTable::~RemoteTable() = default;

std::unique_ptr<RemoteTable::Scratch> RemoteTable::borrow() const {
  const std::lock_guard lock(scratch_mutex_);
  if (scratch_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(scratch_.back());
  scratch_.pop_back();
  return scratch;
}

void RemoteTable::give_back(std::unique_ptr<Scratch> scratch) const noexcept {
  scratch->answers.clear();
  scratch->routes.ids.clear();
  const std::lock_guard lock(scratch_mutex_);
  if (scratch_.size() < kScratchKept) scratch_.push_back(std::move(scratch));
}

// Asks the shards. When they know another map, the map is read again: whichever side is behind, it catches up soon. A
// last try keeps what the shards that agree say: they have checked that the ids are theirs, so their rows are right.
void RemoteTable::ask(Question& question, const std::int64_t* ids, std::size_t n, Scratch& scratch) const {
  const std::int64_t began_ns = monotonic_ns();
  const std::int64_t until_ns =
      began_ns + std::min(call_.map_wait_ms * kMs, (question.deadline_ns - began_ns) / 4 * 3);
  for (std::int64_t pause_ns = kMapPauseNs;; pause_ns *= 2) {
    const auto shards = static_cast<std::uint32_t>(question.view->shards.size());
    scratch.router.route(ids, n, std::max(1u, shards), &scratch.routes);
    scratch.answers.assign(scratch.routes.ids.size(), {});
    if (shards == 0 || question.epoch == 0) return;
    // Once, however often the map is read again.
    if (pause_ns == kMapPauseNs) unique_.fetch_add(scratch.routes.first.back(), std::memory_order_relaxed);
    question.last_try = monotonic_ns() >= until_ns;
    if (ask_shards(question, scratch.routes.ids, pace_, counters_, &scratch.answers)) return;
    question.view =
        cluster_->view_after(question.view->map_version, std::min(until_ns, monotonic_ns() + pause_ns));
  }
}

// Row and status of each unique id. A status that nobody knows is taken as a row that could not be had.
void RemoteTable::spread(Scratch& scratch) const {
  const Routes& routes = scratch.routes;
  scratch.rows.assign(routes.first.back(), default_row_.data());
  scratch.status.assign(routes.first.back(), RowStatus::kUnavailable);
  for (std::size_t shard = 0; shard < scratch.answers.size(); ++shard) {
    const PartAnswer& answer = scratch.answers[shard];
    std::uint32_t at = routes.first[shard];
    if (answer.got != nullptr) {
      for (const Chunk& chunk : answer.got->chunks) {
        for (std::uint32_t k = 0; k < chunk.header.count; ++k, ++at) {
          if (chunk.statuses[k] >= kRowStatuses) continue;
          scratch.rows[at] = chunk.rows + k * row_bytes_;
          scratch.status[at] = static_cast<RowStatus>(chunk.statuses[k]);
        }
      }
    }
    std::fill(scratch.status.begin() + at, scratch.status.begin() + routes.first[shard + 1], answer.rest);
  }
}

template <class Take>
void RemoteTable::resolve(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowStatus* status,
                          Take&& take) const noexcept {
  lookups_.fetch_add(1, std::memory_order_relaxed);
  ids_.fetch_add(n, std::memory_order_relaxed);
  const std::byte* rows[kGroup];
  std::size_t done = 0;
  std::array<std::uint64_t, kRowStatuses> counts{};
  try {
    Question question{.view = cluster_->view(), .table = name_, .wire = wire_, .dim = dim_, .epoch = context.epoch,
                      .deadline_ns = context.deadline_ns == kNoDeadline ? monotonic_ns() + deadline_ns_
                                                                        : context.deadline_ns,
                      .cancelled = context.cancelled, .options = call_};
    if (question.epoch == 0) question.epoch = question.view->newest_epoch;
    std::unique_ptr<Scratch> scratch = borrow();
    const std::size_t most = std::min(kIdsTogether, kBytesTogether / row_bytes_);
    for (std::size_t first = 0; first < n; first += most) {
      const std::size_t together = std::min(most, n - first);
      ask(question, ids + first, together, *scratch);
      spread(*scratch);
      const std::uint32_t* number = scratch->routes.number.data();
      for (std::size_t at = 0; at < together; at += kGroup) {
        const std::size_t count = std::min(kGroup, together - at);
        for (std::size_t i = 0; i < count; ++i) {
          const std::uint32_t unique = number[at + i];
          if (at + i + kGroup < together) __builtin_prefetch(scratch->rows[number[at + i + kGroup]]);
          rows[i] = scratch->rows[unique];
          counts[static_cast<std::size_t>(scratch->status[unique])] += 1;
          if (status != nullptr) status[first + at + i] = scratch->status[unique];
        }
        take(rows, first + at, count);
        done = first + at + count;
      }
    }
    give_back(std::move(scratch));
  } catch (const std::bad_alloc&) {
    // Without memory nobody could be asked.
    std::fill_n(rows, kGroup, default_row_.data());
    if (status != nullptr) std::fill(status + done, status + n, RowStatus::kUnavailable);
    counts[static_cast<std::size_t>(RowStatus::kUnavailable)] += n - done;
    for (std::size_t count = 0; done < n; done += count) take(rows, done, count = std::min(kGroup, n - done));
  }
  for (std::size_t s = 0; s < kRowStatuses; ++s) by_status_[s].fetch_add(counts[s], std::memory_order_relaxed);
}

void RemoteTable::lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type,
                         void* out, RowStatus* status) const noexcept {
  const auto copy = kernels_.copy[static_cast<int>(wire_)][static_cast<int>(out_type)];
  const std::size_t out_bytes = dim_ * row_type_bytes(out_type);
  resolve(context, ids, n, status, [&](const std::byte* const* rows, std::size_t first, std::size_t count) {
    copy(rows, count, dim_, static_cast<std::byte*>(out) + first * out_bytes);
  });
}

void RemoteTable::lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                                std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                                RowStatus* status) const noexcept {
  if (bags == 0) return;
  BagWriter writer(kernels_, static_cast<Stored>(wire_), dim_, offsets, bags, mode, weights, out_type, out);
  resolve(context, ids, static_cast<std::size_t>(offsets[bags]), status,
          [&](const std::byte* const* rows, std::size_t first, std::size_t count) { writer.take(rows, first, count); });
  writer.close();
}

RemoteTableStats RemoteTable::stats() const noexcept {
  const auto get = [](const std::atomic<std::uint64_t>& count) { return count.load(std::memory_order_relaxed); };
  RemoteTableStats stats{.lookups = get(lookups_), .ids = get(ids_), .unique_ids = get(unique_),
                         .by_status = {}, .messages = get(counters_.messages), .hedges = get(counters_.hedges),
                         .failovers = get(counters_.failovers), .mismatches = get(counters_.mismatches),
                         .refusals = {}};
  for (std::size_t s = 0; s < kRowStatuses; ++s) stats.by_status[s] = get(by_status_[s]);
  for (std::size_t c = 0; c < kAnswerCodes; ++c) stats.refusals[c] = get(counters_.refusals[c]);
  return stats;
}

}  // namespace paramserver::flight
