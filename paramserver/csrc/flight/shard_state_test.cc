// Epochs in and out beside lookups: one is served with all its tables or not at all, and waited for only if it is new.
#include "paramserver/csrc/flight/shard_state.h"

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/flight/flight_test.h"

namespace paramserver::flight {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class NoRows final : public RowSource {
 public:
  std::uint32_t dim() const noexcept override { return 1; }
  void lookup(const LookupContext&, const std::int64_t*, std::size_t, RowType, void*,
              RowStatus*) const noexcept override {}
  void lookup_pooled(const LookupContext&, const std::int64_t*, const std::int32_t*, std::size_t, Pooling, const float*,
                     RowType, void*, RowStatus*) const noexcept override {}
};

std::vector<ServedTable> two_tables() {
  return {{"a", std::make_shared<NoRows>(), false, nullptr}, {"b", std::make_shared<NoRows>(), false, nullptr}};
}

void test_publish_and_retire() {
  ShardState state({});
  CHECK(state.newest() == 0 && state.find(1) == nullptr && !state.retire(1));
  state.publish(1, two_tables());
  state.publish(3, two_tables());
  CHECK(state.newest() == 3 && state.epochs() == (std::vector<std::uint64_t>{1, 3}));
  const auto held = state.find(1);
  CHECK(held != nullptr && held->tables.size() == 2);
  add(held->tables.at("a").counters->lookups, 5);
  CHECK(state.retire(1) && state.find(1) == nullptr);
  // A retired epoch lives on for who holds it, and its tables' totals for the next epoch.
  CHECK(held->tables.at("a").source->dim() == 1);
  CHECK(state.find(3)->tables.at("a").counters->lookups.load() == 5);
  CHECK(state.counters().at("a")->lookups.load() == 5 && state.counters().size() == 2);
}

void test_wait() {
  ShardState state({});
  state.publish(1, two_tables());
  const auto soon = steady_clock::now() + milliseconds(1);
  CHECK(state.wait(2, soon) == nullptr && steady_clock::now() >= soon);
  std::thread publisher([&] { state.publish(2, two_tables()); });
  CHECK(state.wait(2, steady_clock::now() + milliseconds(20'000)) != nullptr);
  publisher.join();
  // An epoch that was passed over will not come: nobody waits for it.
  state.publish(4, two_tables());
  CHECK(state.wait(3, steady_clock::now() + milliseconds(20'000)) == nullptr);
}

void test_readers_see_whole_epochs() {
  ShardState state({});
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done.load()) {
        if (const auto served = state.find(state.newest())) CHECK(served->tables.size() == 2);
      }
    });
  }
  for (std::uint64_t epoch = 1; epoch < 500; ++epoch) {
    state.publish(epoch, two_tables());
    if (epoch > 2) CHECK(state.retire(epoch - 2));
    state.set_place({epoch, 0, 1});
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(state.place().map_version == 499);
}

void test_in_flight() {
  InFlight lookups;
  CHECK(lookups.wait_for_none(steady_clock::now()));
  std::thread other;
  {
    const InFlight::Entry entry(lookups);
    CHECK(lookups.count() == 1 && !lookups.wait_for_none(steady_clock::now() + milliseconds(1)));
    other = std::thread([&] { CHECK(lookups.wait_for_none(steady_clock::now() + milliseconds(20'000))); });
  }
  other.join();
}

void test_latencies() {
  TableCounters counters;
  for (const std::int64_t latency_us : {0, 50, 51, 1'000'000, 1'000'001}) counters.answered(latency_us);
  CHECK(counters.latency[0].load() == 2 && counters.latency[1].load() == 1);
  CHECK(counters.latency[17].load() == 1 && counters.latency[18].load() == 1 && counters.lookups.load() == 5);
}

}  // namespace

void test_shard_state() {
  test_publish_and_retire();
  test_wait();
  test_readers_see_whole_epochs();
  test_in_flight();
  test_latencies();
}

}  // namespace paramserver::flight
