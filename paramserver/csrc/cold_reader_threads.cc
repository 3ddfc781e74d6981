// The reads of queues done by a pool of threads, one pread at a time each.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "paramserver/csrc/cold_reader_queue.h"
#include "paramserver/csrc/memory.h"

namespace paramserver {

struct ReadThreads::Pool {
  class Queue;
  struct Read {
    Queue* queue;
    unsigned lane;
    int fd;
    std::uint64_t offset;
    std::size_t bytes;
  };

  explicit Pool(unsigned threads) : threads_max(threads) {}

  void run();

  const unsigned threads_max;
  std::mutex mutex;
  std::condition_variable wanted;
  std::deque<Read> reads;
  bool stopping = false;
  std::vector<std::thread> threads;
};

class ReadThreads::Pool::Queue final : public ReadQueue {
 public:
  Queue(Pool& pool, unsigned lanes) : pool_(pool), buffers_(lanes * kReadBytesMax, false) { started_.reserve(lanes); }

  ~Queue() override {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_at_ = in_flight_;
    done_.wait(lock, [&] { return completions_.size() == in_flight_; });
  }

  const std::byte* buffer(unsigned lane) const noexcept override { return buffers_.data() + lane * kReadBytesMax; }

  void start(unsigned lane, int fd, std::uint64_t offset, std::size_t bytes) noexcept override {
    started_.push_back({this, lane, fd, offset, bytes});
  }

  std::size_t reap(Completion* out, std::size_t max, std::int64_t patience_ns) noexcept override {
    hand_over();
    std::unique_lock<std::mutex> lock(mutex_);
    // Woken once for several completions: with a switch of threads for each, switching would take most of the time.
    wake_at_ = std::max<std::size_t>(1, in_flight_ / 4);
    done_.wait_for(lock, std::chrono::nanoseconds(patience_ns), [&] { return completions_.size() >= wake_at_; });
    std::size_t got = 0;
    for (; got < max && !completions_.empty(); completions_.pop_back()) out[got++] = completions_.back();
    in_flight_ -= got;
    return got;
  }

  void perform(const Read& read) noexcept {
    std::byte* to = buffers_.data() + read.lane * kReadBytesMax;
    ssize_t got = -1;
    do {
      got = pread(read.fd, to, read.bytes, static_cast<off_t>(read.offset));
    } while (got < 0 && errno == EINTR);
    const std::lock_guard<std::mutex> lock(mutex_);
    completions_.push_back({read.lane, got < 0 ? -errno : got});
    // Told under the lock: whoever waits may destroy this queue as soon as the lock is free.
    if (completions_.size() >= wake_at_) done_.notify_one();
  }

 private:
  void hand_over() noexcept {
    if (started_.empty()) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      in_flight_ += started_.size();
    }
    {
      const std::lock_guard<std::mutex> lock(pool_.mutex);
      pool_.reads.insert(pool_.reads.end(), started_.begin(), started_.end());
    }
    for (std::size_t i = std::min<std::size_t>(started_.size(), pool_.threads_max); i-- > 0;) pool_.wanted.notify_one();
    started_.clear();
  }

  Pool& pool_;
  Region buffers_;
  std::vector<Read> started_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Completion> completions_;
  std::size_t in_flight_ = 0;
  std::size_t wake_at_ = 1;
};

void ReadThreads::Pool::run() {
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    wanted.wait(lock, [&] { return stopping || !reads.empty(); });
    if (stopping) return;
    const Read read = reads.front();
    reads.pop_front();
    lock.unlock();
    read.queue->perform(read);
    lock.lock();
  }
}

ReadThreads::ReadThreads(unsigned threads) : pool_(std::make_unique<Pool>(threads)) {}

ReadThreads::~ReadThreads() {
  {
    const std::lock_guard<std::mutex> lock(pool_->mutex);
    pool_->stopping = true;
  }
  pool_->wanted.notify_all();
  for (std::thread& thread : pool_->threads) thread.join();
}

std::unique_ptr<ReadQueue> ReadThreads::make_queue(unsigned lanes) {
  const std::lock_guard<std::mutex> lock(pool_->mutex);
  while (pool_->threads.size() < pool_->threads_max) pool_->threads.emplace_back([pool = pool_.get()] { pool->run(); });
  return std::make_unique<Pool::Queue>(*pool_, lanes);
}

}  // namespace paramserver
