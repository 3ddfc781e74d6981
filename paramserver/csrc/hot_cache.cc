#include "paramserver/csrc/hot_cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "paramserver/csrc/bag_writer.h"
#include "paramserver/csrc/clock.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/hash.h"

namespace paramserver {

using Word = std::atomic<std::uint64_t>;
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

struct alignas(64) HotRowCache::Set {
  std::atomic<std::uint32_t> tags[kWays];
  std::atomic<std::uint8_t> used[kWays];
  std::atomic<std::uint32_t> hand;
};

struct HotRowCache::Way {
  std::atomic<std::uint32_t> seq;
  std::atomic<std::uint8_t> status;
  std::atomic<std::uint64_t> epoch;
  std::atomic<std::int64_t> id;
  std::atomic<std::int64_t> expires_ns;

  Word* row() noexcept { return reinterpret_cast<Word*>(this + 1); }
};

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::uint8_t kUsedMax = 3;
// Ids that are looked up together: bounds the scratch memory of a call.
constexpr std::size_t kBatchIds = 32768;
// Sets fetched ahead of the one being read.
constexpr std::size_t kAhead = 16;

std::uint64_t sets_for(std::uint64_t bytes_max, std::size_t set_bytes) {
  if (bytes_max > std::uint64_t{1} << 42) {
    throw OptionError("bytes_max is " + std::to_string(bytes_max) + ", expected at most 2**42");
  }
  return std::max<std::uint64_t>(1, bytes_max / set_bytes);
}

// Words are copied with orders that cost nothing on x86 and keep a copy between the two looks at the sequence number.
void copy_out(const Word* from, std::byte* to, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = from[at / 8].load(std::memory_order_acquire);
    std::memcpy(to + at, &word, std::min<std::size_t>(8, bytes - at));
  }
}

void copy_in(const std::byte* from, Word* to, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + at, std::min<std::size_t>(8, bytes - at));
    to[at / 8].store(word, std::memory_order_release);
  }
}

}  // namespace

// Rows come out in `rows`, in the order of the ids.
struct HotRowCache::Batch {
  std::uint64_t epoch = 0;
  const std::int64_t* ids = nullptr;
  std::size_t n = 0;
  std::vector<std::byte> rows{};        // [n, row_bytes]
  std::vector<RowStatus> status{};      // [n]
  std::vector<std::uint32_t> missed{};  // places of ids that are not here
  std::vector<std::int64_t> missed_ids{};
  std::vector<std::byte> missed_rows{};
  std::vector<RowStatus> missed_status{};
};

HotRowCache::HotRowCache(std::shared_ptr<const RowSource> source, const HotCacheOptions& options)
    : source_(std::move(source)),
      options_(options),
      kernels_(options.kernels == nullptr ? kernels() : *options.kernels),
      dim_(source_->dim()),
      row_bytes_(dim_ * row_type_bytes(options.kept)),
      way_bytes_(sizeof(Way) + (row_bytes_ + 7) / 8 * 8),
      sets_(sets_for(options.bytes_max, sizeof(Set) + kWays * way_bytes_)),
      region_(sets_ * (sizeof(Set) + kWays * way_bytes_), options.huge_pages) {}

HotRowCache::Key HotRowCache::key_of(std::uint64_t epoch, std::int64_t id) const noexcept {
  const std::uint64_t hash = mix(static_cast<std::int64_t>(mix(id) ^ epoch * 0x9e3779b97f4a7c15ULL));
  const auto set = static_cast<std::uint64_t>((static_cast<unsigned __int128>(hash) * sets_) >> 64);
  return {epoch, id, set, static_cast<std::uint32_t>(hash) | 1u};
}

HotRowCache::Set& HotRowCache::set_at(std::uint64_t set) const noexcept {
  return reinterpret_cast<Set*>(region_.data())[set];
}

HotRowCache::Way& HotRowCache::way_at(std::uint64_t set, std::size_t way) const noexcept {
  std::byte* const ways = region_.data() + sets_ * sizeof(Set);
  return *reinterpret_cast<Way*>(ways + (set * kWays + way) * way_bytes_);
}

std::uint64_t HotRowCache::epoch_for(const LookupContext& context) const noexcept {
  if (context.cancelled != nullptr && context.cancelled->load(std::memory_order_relaxed)) return 0;
  if (context.deadline_ns != kNever && monotonic_ns() >= context.deadline_ns) return 0;
  const std::uint64_t epoch = context.epoch != 0 ? context.epoch : source_->epoch();
  std::uint64_t newest = newest_.load(std::memory_order_relaxed);
  while (epoch > newest && !newest_.compare_exchange_weak(newest, epoch, std::memory_order_relaxed)) {
  }
  return epoch;
}

bool HotRowCache::find(const Key& key, std::int64_t now_ns, std::byte* row, RowStatus* status) const noexcept {
  Set& set = set_at(key.set);
  for (std::size_t w = 0; w < kWays; ++w) {
    if (set.tags[w].load(std::memory_order_relaxed) != key.tag) continue;
    Way& way = way_at(key.set, w);
    const std::uint32_t seq = way.seq.load(std::memory_order_acquire);
    const bool ours = way.id.load(std::memory_order_acquire) == key.id &&
                      way.epoch.load(std::memory_order_acquire) == key.epoch &&
                      way.expires_ns.load(std::memory_order_acquire) > now_ns;
    if (seq % 2 != 0 || !ours) continue;
    *status = static_cast<RowStatus>(way.status.load(std::memory_order_acquire));
    copy_out(way.row(), row, row_bytes_);
    if (way.seq.load(std::memory_order_relaxed) != seq) return false;
    const std::uint8_t used = set.used[w].load(std::memory_order_relaxed);
    if (used < kUsedMax) set.used[w].store(used + 1, std::memory_order_relaxed);
    return true;
  }
  return false;
}

std::size_t HotRowCache::victim(Set& set, const Key& key) const noexcept {
  for (std::size_t w = 0; w < kWays; ++w) {
    if (set.tags[w].load(std::memory_order_relaxed) == 0) return w;
  }
  const std::uint64_t newest = newest_.load(std::memory_order_relaxed);
  for (std::size_t w = 0; w < kWays; ++w) {
    if (way_at(key.set, w).epoch.load(std::memory_order_relaxed) < newest) return w;
  }
  for (std::size_t step = 0; step < kWays * (kUsedMax + 1u); ++step) {
    const std::size_t w = set.hand.fetch_add(1, std::memory_order_relaxed) % kWays;
    const std::uint8_t used = set.used[w].load(std::memory_order_relaxed);
    if (used == 0) return w;
    set.used[w].store(used - 1, std::memory_order_relaxed);
  }
  return set.hand.load(std::memory_order_relaxed) % kWays;
}

// The way to write `key` to, its sequence number odd; null when another thread is at it.
HotRowCache::Way* HotRowCache::claim(const Key& key) const noexcept {
  Set& set = set_at(key.set);
  std::size_t w = 0;
  for (; w < kWays; ++w) {
    Way& way = way_at(key.set, w);
    if (set.tags[w].load(std::memory_order_relaxed) == key.tag && way.id.load(std::memory_order_relaxed) == key.id &&
        way.epoch.load(std::memory_order_relaxed) == key.epoch) {
      break;
    }
  }
  const bool renewed = w < kWays;
  if (!renewed) w = victim(set, key);
  Way& way = way_at(key.set, w);
  std::uint32_t seq = way.seq.load(std::memory_order_relaxed);
  if (seq % 2 != 0 || !way.seq.compare_exchange_strong(seq, seq + 1, std::memory_order_acq_rel)) {
    counters_.contended.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }
  const std::uint32_t before = set.tags[w].exchange(key.tag, std::memory_order_acq_rel);
  if (!renewed) {
    set.used[w].store(0, std::memory_order_relaxed);
    if (before != 0) counters_.evicted.fetch_add(1, std::memory_order_relaxed);
  }
  return &way;
}

std::int64_t HotRowCache::expiry(RowStatus status, std::int64_t now_ns) const noexcept {
  const bool data = status == RowStatus::kHit || status == RowStatus::kCold;
  const std::int64_t age_ms = data ? options_.row_age_max_ms : options_.default_age_max_ms;
  if (data && age_ms == 0) return kNever;
  return data || status == RowStatus::kDefault ? now_ns + age_ms * 1'000'000 : now_ns;
}

void HotRowCache::keep(const Key& key, std::int64_t now_ns, const std::byte* row, RowStatus status) const noexcept {
  const std::int64_t expires_ns = expiry(status, now_ns);
  if (expires_ns <= now_ns) return;
  Way* const way = claim(key);
  if (way == nullptr) return;
  const RowStatus kept = status == RowStatus::kCold ? RowStatus::kHit : status;
  way->id.store(key.id, std::memory_order_release);
  way->epoch.store(key.epoch, std::memory_order_release);
  way->expires_ns.store(expires_ns, std::memory_order_release);
  way->status.store(static_cast<std::uint8_t>(kept), std::memory_order_release);
  copy_in(row, way->row(), row_bytes_);
  way->seq.fetch_add(1, std::memory_order_release);
  counters_.inserted.fetch_add(1, std::memory_order_relaxed);
}

// Fills rows and status of the batch: from here, and in one lookup of the source for what is not here.
void HotRowCache::fetch(const LookupContext& at_epoch, Batch& batch) const {
  batch.rows.resize(batch.n * row_bytes_);
  batch.status.resize(batch.n);
  batch.missed.clear();
  batch.missed_ids.clear();
  const std::int64_t now_ns = monotonic_ns();
  for (std::size_t i = 0; i < batch.n; ++i) {
    if (i + kAhead < batch.n) __builtin_prefetch(&set_at(key_of(batch.epoch, batch.ids[i + kAhead]).set));
    const Key key = key_of(batch.epoch, batch.ids[i]);
    if (find(key, now_ns, batch.rows.data() + i * row_bytes_, &batch.status[i])) continue;
    batch.missed.push_back(static_cast<std::uint32_t>(i));
    batch.missed_ids.push_back(batch.ids[i]);
  }
  const std::size_t missed = batch.missed.size();
  counters_.hits.fetch_add(batch.n - missed, std::memory_order_relaxed);
  counters_.misses.fetch_add(missed, std::memory_order_relaxed);
  if (missed == 0) return;
  batch.missed_rows.resize(missed * row_bytes_);
  batch.missed_status.resize(missed);
  source_->lookup(at_epoch, batch.missed_ids.data(), missed, options_.kept, batch.missed_rows.data(),
                  batch.missed_status.data());
  for (std::size_t k = 0; k < missed; ++k) {
    const std::byte* row = batch.missed_rows.data() + k * row_bytes_;
    std::memcpy(batch.rows.data() + batch.missed[k] * row_bytes_, row, row_bytes_);
    batch.status[batch.missed[k]] = batch.missed_status[k];
    keep(key_of(batch.epoch, batch.missed_ids[k]), now_ns, row, batch.missed_status[k]);
  }
}

void HotRowCache::lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type,
                         void* out, RowStatus* status) const noexcept {
  const auto copy = kernels_.copy[static_cast<int>(options_.kept)][static_cast<int>(out_type)];
  std::size_t first = 0;
  auto* to = static_cast<std::byte*>(out);
  const std::size_t out_bytes = dim_ * row_type_bytes(out_type);
  LookupContext at_epoch = context;
  if (const std::uint64_t epoch = epoch_for(context); epoch != 0) {
    at_epoch.epoch = epoch;
    try {
      for (Batch batch{.epoch = epoch}; first < n; first += batch.n) {
        batch.ids = ids + first;
        batch.n = std::min(kBatchIds, n - first);
        fetch(at_epoch, batch);
        for (std::size_t i = 0; i < batch.n; ++i) {
          const std::byte* row = batch.rows.data() + i * row_bytes_;
          copy(&row, 1, dim_, to + (first + i) * out_bytes);
        }
        if (status != nullptr) std::copy_n(batch.status.data(), batch.n, status + first);
      }
      return;
    } catch (const std::bad_alloc&) {
      // Without memory for scratch there is still the source.
    }
  }
  counters_.bypassed.fetch_add(n - first, std::memory_order_relaxed);
  source_->lookup(at_epoch, ids + first, n - first, out_type, to + first * out_bytes,
                  status == nullptr ? nullptr : status + first);
}

void HotRowCache::lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                                std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                                RowStatus* status) const noexcept {
  if (bags == 0) return;
  const auto n = static_cast<std::size_t>(offsets[bags]);
  LookupContext at_epoch = context;
  if (const std::uint64_t epoch = epoch_for(context); epoch != 0) {
    at_epoch.epoch = epoch;
    try {
      BagWriter writer(kernels_, static_cast<Stored>(options_.kept), dim_, offsets, bags, mode, weights, out_type, out);
      Batch batch{.epoch = epoch};
      for (std::size_t first = 0; first < n; first += batch.n) {
        batch.ids = ids + first;
        batch.n = std::min(kBatchIds, n - first);
        fetch(at_epoch, batch);
        for (std::size_t i = 0; i < batch.n; ++i) {
          const std::byte* row = batch.rows.data() + i * row_bytes_;
          writer.take(&row, first + i, 1);
        }
        if (status != nullptr) std::copy_n(batch.status.data(), batch.n, status + first);
      }
      writer.close();
      return;
    } catch (const std::bad_alloc&) {
      // Without memory for scratch there is still the source, which pools everything anew.
    }
  }
  counters_.bypassed.fetch_add(n, std::memory_order_relaxed);
  source_->lookup_pooled(at_epoch, ids, offsets, bags, mode, weights, out_type, out, status);
}

HotCacheStats HotRowCache::stats() const noexcept {
  const auto get = [](const std::atomic<std::uint64_t>& count) { return count.load(std::memory_order_relaxed); };
  return {get(counters_.hits),    get(counters_.misses),    get(counters_.bypassed), get(counters_.inserted),
          get(counters_.evicted), get(counters_.contended), sets_ * kWays,           region_.bytes()};
}

}  // namespace paramserver
