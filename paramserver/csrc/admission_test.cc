// Admission and eviction: what they keep in RAM under the popularities of real traffic, beside LRU and the best that a
// choice known beforehand could do.
#include "paramserver/csrc/admission.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <unordered_map>

#include "paramserver/csrc/check.h"

namespace paramserver {
namespace {

constexpr std::int64_t kIds = 40'000;
constexpr std::uint64_t kRam = 10'000;
constexpr int kAccesses = 1'200'000;

// Ranks drawn with P(rank r) proportional to (r + q)^-s, r from 0; ids are the ranks, scattered.
class Popularity {
 public:
  Popularity(double s, double q) : random_(11) {
    double sum = 0.0;
    for (std::int64_t r = 0; r < kIds; ++r) below_.push_back(sum += std::pow(static_cast<double>(r) + q, -s));
  }
  std::int64_t draw() {
    const double at = std::uniform_real_distribution<double>(0.0, below_.back())(random_);
    return std::upper_bound(below_.begin(), below_.end(), at) - below_.begin();
  }
  // The share of accesses that the most popular ids get: the best that any fixed choice does.
  double best(std::uint64_t ids) const { return below_[ids - 1] / below_.back(); }

 private:
  std::vector<double> below_;
  std::mt19937_64 random_;
};

class Lru {
 public:
  bool access(std::int64_t id) {
    if (const auto at = where_.find(id); at != where_.end()) {
      order_.splice(order_.begin(), order_, at->second);
      return true;
    }
    if (order_.size() == kRam) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    order_.push_front(id);
    where_[id] = order_.begin();
    return false;
  }

 private:
  std::list<std::int64_t> order_;
  std::unordered_map<std::int64_t, std::list<std::int64_t>::iterator> where_;
};

// What the tier does, on a table of nothing but ids.
class Admitting {
 public:
  bool access(std::int64_t id) {
    if (++accesses_ == 10 * kRam) {
      accesses_ = 0;
      sketch_.halve();
      clock_.halve();
    }
    if (const auto at = row_of_.find(id); at != row_of_.end()) {
      clock_.touch(at->second);
      return true;
    }
    sketch_.add(id);
    RowNumber row = row_of_.size();
    if (row == kRam) {
      row = clock_.victim();
      if (sketch_.count(id) <= clock_.count(row)) return false;
      sketch_.raise(clock_.id(row), clock_.count(row));
      row_of_.erase(clock_.id(row));
      clock_.remove(row);
    }
    clock_.place(row, id, {}, sketch_.count(id));
    row_of_[id] = row;
    return false;
  }

 private:
  FrequencySketch sketch_{4 * kRam};
  RowClock clock_{kRam};
  std::unordered_map<std::int64_t, RowNumber> row_of_;
  std::uint64_t accesses_ = 0;
};

void test_hit_rates(double s, double q, double of_best) {
  Popularity popularity(s, q);
  Lru lru;
  Admitting admitting;
  int hits_lru = 0, hits = 0, counted = 0;
  for (int i = 0; i < kAccesses; ++i) {
    const std::int64_t id = popularity.draw();
    const bool warm = i >= kAccesses / 2;
    counted += warm;
    hits_lru += lru.access(id) && warm;
    hits += admitting.access(id) && warm;
  }
  const double rate_lru = double(hits_lru) / counted, rate = double(hits) / counted, best = popularity.best(kRam);
  std::printf("s=%.2f q=%.0f, RAM for 1/4: admission %.4f, LRU %.4f, best fixed choice %.4f\n", s, q, rate, rate_lru,
              best);
  // Where a quarter of the ids gets nearly everything, LRU is as good: it takes in every newcomer at once.
  CHECK(rate > rate_lru - 0.002);
  CHECK(best > 0.95 || rate > rate_lru + 0.03);
  CHECK(rate > of_best * best);
}

// A scan over ids that are asked for once leaves what is popular where it is.
void test_a_scan_evicts_little() {
  Popularity popularity(1.0, 10);
  Admitting admitting;
  for (int i = 0; i < kAccesses / 4; ++i) admitting.access(popularity.draw());
  const auto hit_rate = [&] {
    int hits = 0;
    for (int i = 0; i < 20'000; ++i) hits += admitting.access(popularity.draw());
    return hits / 20'000.0;
  };
  const double before = hit_rate();
  for (std::int64_t id = kIds; id < kIds + 40'000; ++id) admitting.access(id);
  CHECK(hit_rate() > before - 0.02);
}

void test_the_sketch_counts_and_forgets() {
  FrequencySketch sketch(4096);
  for (std::int64_t id = -500; id < 500; ++id) {
    for (std::int64_t i = 0; i <= (id & 7); ++i) sketch.add(id);
  }
  int over = 0;
  for (std::int64_t id = -500; id < 500; ++id) {
    CHECK(sketch.count(id) >= static_cast<unsigned>(id & 7) + 1);
    over += sketch.count(id) > static_cast<unsigned>(id & 7) + 1;
  }
  CHECK(over < 50);
  sketch.raise(7, 1000);
  CHECK(sketch.count(7) == FrequencySketch::kCountMax);
  sketch.halve();
  CHECK(sketch.count(-500) <= 4);
  for (int i = 0; i < 8; ++i) sketch.halve();
  for (std::int64_t id = -500; id < 500; ++id) CHECK(sketch.count(id) == 0);
}

void test_the_clock_keeps_what_is_touched() {
  RowClock clock(100);
  CHECK(clock.victim() == 100);
  for (RowNumber row = 0; row < 100; ++row) clock.place(row, static_cast<std::int64_t>(row), {}, 1);
  clock.place(42, 42, {}, 0);
  for (RowNumber row = 0; row < 100; row += 2) clock.touch(row);
  for (int i = 0; i < 50; ++i) {
    const RowNumber row = clock.victim();
    CHECK(row % 2 == 1 || row == 42);
    clock.remove(row);
  }
  CHECK(clock.rows() == 50);
  clock.touch(1000);
  for (int i = 0; i < 300; ++i) clock.touch(2);
  CHECK(clock.count(2) == FrequencySketch::kCountMax);
}

}  // namespace
}  // namespace paramserver

int main() {
  paramserver::test_the_sketch_counts_and_forgets();
  paramserver::test_the_clock_keeps_what_is_touched();
  paramserver::test_hit_rates(1.0, 10, 0.97);
  paramserver::test_hit_rates(1.49, 1, 0.99);
  paramserver::test_a_scan_evicts_little();
  return paramserver::check_failures != 0;
}
