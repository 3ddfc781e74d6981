// The hot-row cache over a source whose rows say which id and epoch they are: no row of another epoch or id, nothing
// kept that was not answered from data, the pooling bits of the source, and many threads while epochs go on.
#include "paramserver/csrc/hot_cache.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "paramserver/csrc/bag_writer.h"
#include "paramserver/csrc/check.h"
#include "paramserver/csrc/hash.h"

namespace paramserver {
namespace {

constexpr std::uint32_t kDim = 5;

// Row j of id at epoch e is id % 1000 + e * 1000 + j; multiples of 7 are unknown, those of 11 unavailable.
class Fake final : public RowSource {
 public:
  std::uint32_t dim() const noexcept override { return kDim; }
  std::uint64_t epoch() const noexcept override { return newest.load(); }

  static float number(std::int64_t id, std::uint64_t epoch, std::uint32_t j) {
    return static_cast<float>(id % 1000 + static_cast<std::int64_t>(epoch) * 1000 + j);
  }
  static RowStatus status_of(std::int64_t id) {
    if (id % 7 == 0) return RowStatus::kDefault;
    if (id % 11 == 0) return RowStatus::kUnavailable;
    return id % 5 == 0 ? RowStatus::kCold : RowStatus::kHit;
  }

  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
              RowStatus* status) const noexcept override {
    asked += n;
    const std::uint64_t epoch = context.epoch == 0 ? newest.load() : context.epoch;
    const auto copy = kernels().copy[0][static_cast<int>(out_type)];
    for (std::size_t i = 0; i < n; ++i) {
      float row[kDim] = {};
      const RowStatus is = late(context) ? RowStatus::kDeadline : status_of(ids[i]);
      for (std::uint32_t j = 0; j < kDim && (is == RowStatus::kHit || is == RowStatus::kCold); ++j) {
        row[j] = number(ids[i], epoch, j);
      }
      const auto* from = reinterpret_cast<const std::byte*>(row);
      copy(&from, 1, kDim, static_cast<std::byte*>(out) + i * kDim * row_type_bytes(out_type));
      if (status != nullptr) status[i] = is;
    }
  }

  void lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                     std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                     RowStatus* status) const noexcept override {
    const auto n = static_cast<std::size_t>(offsets[bags]);
    std::vector<float> rows(n * kDim);
    lookup(context, ids, n, RowType::kF32, rows.data(), status);
    BagWriter writer(kernels(), Stored::kF32, kDim, offsets, bags, mode, weights, out_type, out);
    for (std::size_t i = 0; i < n; ++i) {
      const auto* row = reinterpret_cast<const std::byte*>(&rows[i * kDim]);
      writer.take(&row, i, 1);
    }
    writer.close();
  }

  static bool late(const LookupContext& context) { return context.deadline_ns == 0; }

  std::atomic<std::uint64_t> newest{1};
  mutable std::atomic<std::uint64_t> asked{0};
};

std::vector<std::int64_t> ids_from(std::int64_t first, std::int64_t n) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(first + i);
  return ids;
}

struct Answer {
  std::vector<float> rows;
  std::vector<RowStatus> status;
};

Answer ask(const RowSource& source, const std::vector<std::int64_t>& ids, LookupContext context = {}) {
  Answer answer{std::vector<float>(ids.size() * kDim), std::vector<RowStatus>(ids.size())};
  source.lookup(context, ids.data(), ids.size(), RowType::kF32, answer.rows.data(), answer.status.data());
  return answer;
}

// Whether the cache gives what the source gives; a kept row counts as a hit.
bool same(const Answer& cached, const Answer& source) {
  if (cached.rows != source.rows) return false;
  for (std::size_t i = 0; i < source.status.size(); ++i) {
    const bool data = source.status[i] == RowStatus::kCold || source.status[i] == RowStatus::kHit;
    if (data ? cached.status[i] > RowStatus::kCold : cached.status[i] != source.status[i]) return false;
  }
  return true;
}

void only_data_is_kept() {
  const auto source = std::make_shared<Fake>();
  const HotRowCache cache(source, {.bytes_max = 1 << 20});
  const auto ids = ids_from(-100, 200);
  const Answer direct = ask(*source, ids);
  CHECK(same(ask(cache, ids), direct));
  source->asked = 0;
  const Answer again = ask(cache, ids);
  CHECK(same(again, direct));
  std::uint64_t others = 0;
  for (const std::int64_t id : ids) others += Fake::status_of(id) > RowStatus::kCold;
  CHECK(source->asked == others);
  CHECK(cache.stats().hits == 200 - others && cache.stats().inserted == 200 - others);
  for (std::size_t i = 0; i < ids.size(); ++i) CHECK(again.status[i] != RowStatus::kCold);
}

void unknown_ids_are_kept_for_a_while_if_asked() {
  const auto source = std::make_shared<Fake>();
  const HotRowCache cache(source, {.bytes_max = 1 << 20, .default_age_max_ms = 3'600'000});
  ask(cache, {7, 11, 14});
  source->asked = 0;
  CHECK(same(ask(cache, {7, 11, 14}), ask(*source, {7, 11, 14})));
  CHECK(source->asked == 4);  // 3 by the source itself, and the unavailable id again
}

void an_epoch_has_its_own_rows() {
  const auto source = std::make_shared<Fake>();
  const HotRowCache cache(source, {.bytes_max = 1 << 20});
  const auto ids = ids_from(1, 50);
  const Answer first = ask(cache, ids);
  source->newest = 2;
  CHECK(cache.epoch() == 2);
  CHECK(same(ask(cache, ids), ask(*source, ids)));
  LookupContext old;
  old.epoch = 1;
  CHECK(same(ask(cache, ids, old), first));
  source->newest = 0;
  ask(cache, ids);
  CHECK(cache.stats().bypassed == ids.size());
}

void late_calls_are_passed_through() {
  const auto source = std::make_shared<Fake>();
  const HotRowCache cache(source, {.bytes_max = 1 << 20});
  ask(cache, {1, 2});
  LookupContext late;
  late.deadline_ns = 0;
  CHECK(ask(cache, {1, 2}, late).status[0] == RowStatus::kDeadline);
  const std::atomic<bool> cancelled{true};
  LookupContext context;
  context.cancelled = &cancelled;
  ask(cache, {1, 2}, context);
  CHECK(cache.stats().bypassed == 4);
}

void other_types_and_bags_have_the_source_s_bits() {
  const auto source = std::make_shared<Fake>();
  const HotRowCache wide(source, {.bytes_max = 1 << 20});
  const HotRowCache narrow(source, {.bytes_max = 1 << 20, .kept = RowType::kF16});
  const std::vector<std::int64_t> ids{3, 7, 3, 11, 8, 1, 1, 999};
  const std::vector<std::int32_t> offsets{0, 3, 3, 4, 8};
  const std::vector<float> weights{0.5f, 1, -2, 3, 1, 1, 0.25f, 7};
  for (const HotRowCache* cache : {&wide, &narrow}) {
    for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBF16}) {
      for (int round = 0; round < 2; ++round) {
        for (const Pooling mode : {Pooling::kSum, Pooling::kMean, Pooling::kSqrtN}) {
          std::vector<std::byte> got(4 * kDim * 4), want(4 * kDim * 4);
          std::vector<RowStatus> status(ids.size());
          cache->lookup_pooled({}, ids.data(), offsets.data(), 4, mode, weights.data(), type, got.data(),
                               status.data());
          source->lookup_pooled({}, ids.data(), offsets.data(), 4, mode, weights.data(), type, want.data(), nullptr);
          CHECK(got == want && status[3] == RowStatus::kUnavailable);
        }
        std::vector<std::byte> got(ids.size() * kDim * 4), want(ids.size() * kDim * 4);
        cache->lookup({}, ids.data(), ids.size(), type, got.data(), nullptr);
        source->lookup({}, ids.data(), ids.size(), type, want.data(), nullptr);
        CHECK(got == want);
      }
    }
  }
}

void its_memory_is_bounded_and_hot_rows_outlive_a_scan() {
  const auto source = std::make_shared<Fake>();
  const HotRowCache cache(source, {.bytes_max = 256 << 10});
  CHECK(cache.stats().bytes <= 256 << 10);
  std::vector<std::int64_t> hot;
  for (std::int64_t id = 1; hot.size() < 300; ++id) {
    if (Fake::status_of(id) <= RowStatus::kCold) hot.push_back(id);
  }
  for (int round = 0; round < 4; ++round) ask(cache, hot);
  for (std::int64_t first = 10'000; first < 60'000; first += 5'000) {
    ask(cache, ids_from(first, 5'000));
    ask(cache, hot);
  }
  CHECK(cache.stats().evicted > 10'000);
  const std::uint64_t before = cache.stats().hits;
  ask(cache, hot);
  CHECK(cache.stats().hits - before > 200);
}

void readers_beside_epochs() {
  const auto source = std::make_shared<Fake>();
  const HotRowCache cache(source, {.bytes_max = 16 << 10});
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  const auto read = [&](std::int64_t seed) {
    while (!stop.load()) {
      std::vector<std::int64_t> ids;
      for (int i = 0; i < 64; ++i) ids.push_back(static_cast<std::int64_t>(mix(++seed) % 500));
      LookupContext context;
      context.epoch = source->newest.load();
      const Answer answer = ask(cache, ids, context);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool data = Fake::status_of(ids[i]) <= RowStatus::kCold;
        for (std::uint32_t j = 0; j < kDim; ++j) {
          wrong += answer.rows[i * kDim + j] != (data ? Fake::number(ids[i], context.epoch, j) : 0.0f);
        }
      }
    }
  };
  std::vector<std::thread> readers;
  for (std::int64_t r = 0; r < 3; ++r) readers.emplace_back(read, r * 1'000'000);
  while (source->newest.load() < 200) {
    const std::uint64_t asked = source->asked.load();
    while (source->asked.load() < asked + 500) std::this_thread::yield();
    source->newest += 1;
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
  CHECK(cache.stats().hits > 0);
}

}  // namespace
}  // namespace paramserver

int main() {
  paramserver::only_data_is_kept();
  paramserver::unknown_ids_are_kept_for_a_while_if_asked();
  paramserver::an_epoch_has_its_own_rows();
  paramserver::late_calls_are_passed_through();
  paramserver::other_types_and_bags_have_the_source_s_bits();
  paramserver::its_memory_is_bounded_and_hot_rows_outlive_a_scan();
  paramserver::readers_beside_epochs();
  return paramserver::check_failures == 0 ? 0 : 1;
}
