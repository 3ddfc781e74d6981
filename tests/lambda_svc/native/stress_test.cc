// 10,000 requests of mixed sizes from 64 threads, over an engine that lets go of feeds late and checks that nobody
// wrote to them meanwhile. Meant to run under ASan + UBSan and under TSan.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "lambda_svc/csrc/errors.h"
#include "tests/lambda_svc/native/check.h"
#include "tests/lambda_svc/native/request_fixture.h"

using namespace lambda_svc;
using namespace lambda_svc::test;

namespace {

std::uint64_t checksum(const void* data, std::size_t bytes) {
  const auto* all = static_cast<const unsigned char*>(data);
  return std::accumulate(all, all + bytes, std::uint64_t{bytes}, [](std::uint64_t sum, unsigned char byte) {
    return sum * 31 + byte;
  });
}

// Holds some feeds of finished runs, as an output that aliases a feed would.
class LateReleaser {
 public:
  ~LateReleaser() { drain(0); }

  void hold(const Feed& feed, const FeedRelease& release) {
    release.acquire(release.owner);
    {
      const std::lock_guard lock(mutex_);
      held_.push_back({feed.data, feed.bytes, checksum(feed.data, feed.bytes), release});
    }
    drain(100);
  }

  int changed() const { return changed_; }

 private:
  struct Held {
    const void* data;
    std::size_t bytes;
    std::uint64_t sum;
    FeedRelease release;
  };

  void drain(std::size_t keep) {
    for (;;) {
      Held oldest;
      {
        const std::lock_guard lock(mutex_);
        if (held_.size() <= keep) return;
        oldest = held_.front();
        held_.pop_front();
      }
      if (checksum(oldest.data, oldest.bytes) != oldest.sum) ++changed_;
      oldest.release.release(oldest.release.owner);
    }
  }

  std::mutex mutex_;
  std::deque<Held> held_;
  std::atomic<int> changed_{0};
};

}  // namespace

TEST(stress_threads_never_share_or_lose_memory) {
  constexpr int kThreads = 64;
  constexpr int kRequests = 10000;
  Fixture fixture;
  std::atomic<int> wrong{0}, done{0};
  {
    LateReleaser late;
    fixture.executable->before = [&late](const Feed* feeds, const FeedRelease& release, std::size_t rows) {
      if (rows % 3 == 0) late.hold(feeds[rows % 8], release);
    };
    const Pipeline pipeline(fixture.arena, fixture.spec());
    const auto work = [&](int seed) {
      std::mt19937 random(seed);
      while (done.fetch_add(1) < kRequests) {
        const std::size_t n = random() % 40 == 0 ? random() % 700 : random() % 40;
        std::vector<std::int64_t> ids(n);
        for (auto& id : ids) id = static_cast<std::int64_t>(random() % 500);
        const auto user = static_cast<std::int64_t>(random() % 50);
        const RankResult result = pipeline.rank(request_of(user, ids));
        for (std::size_t i = 0; i < result.positions.size(); ++i) {
          const float expected = Fixture::head0(user, result.candidate_ids[i]);
          if (std::abs(result.heads[i] - expected) > 1e-2) ++wrong;
        }
        if (result.positions.size() != n) ++wrong;
      }
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
    for (std::thread& thread : threads) thread.join();
    CHECK(late.changed() == 0);
  }
  CHECK(wrong == 0);
  const ArenaStats stats = fixture.arena->stats();
  CHECK(stats.leases == 0 && stats.leased_bytes == 0);
  CHECK(stats.blocks_new < stats.leases_total / 10);
}
