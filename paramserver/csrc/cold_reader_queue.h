// Reads in flight: a fixed number of lanes, each with a buffer of its own, started and reaped by one thread at a time.
//
// Two kinds: io_uring through raw system calls, and a pool of threads that pread, for kernels and sandboxes without it.
// Thread-safety: one thread at a time, though not always the same. Ownership: a queue owns its buffers and gives them
// up only when the kernel no longer writes there, so whoever stops waiting may leave reads in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace paramserver {

// The most that one read brings.
inline constexpr std::size_t kReadBytesMax = std::size_t{64} << 10;

class ReadQueue {
 public:
  struct Completion {
    unsigned lane;
    std::int64_t result;  // bytes read, or minus an errno
  };

  virtual ~ReadQueue() = default;
  // Where a lane's read arrives: kReadBytesMax bytes, aligned for direct reads.
  virtual const std::byte* buffer(unsigned lane) const noexcept = 0;
  // Begins a read on a lane with none in flight. The descriptor must stay open until its completion.
  virtual void start(unsigned lane, int fd, std::uint64_t offset, std::size_t bytes) noexcept = 0;
  // Waits for a completion, at most `patience_ns`; returns how many there are, 0 when time is up.
  virtual std::size_t reap(Completion* out /*[max]*/, std::size_t max, std::int64_t patience_ns) noexcept = 0;
};

// Null where the kernel or a sandbox refuses io_uring.
std::unique_ptr<ReadQueue> make_uring_queue(unsigned lanes);

// Threads that read for any number of queues; they start with the first queue.
class ReadThreads {
 public:
  explicit ReadThreads(unsigned threads);
  ~ReadThreads();
  std::unique_ptr<ReadQueue> make_queue(unsigned lanes);

 private:
  struct Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace paramserver
