// Slots read in batches, many reads in flight: what a lookup does with its cold ids.
//
// A batch is put in the order of the file; slots of one block are one read, and so are blocks that lie side by side, up
// to kReadBytesMax. Reads run through io_uring, or a pool of threads where that is refused. A batch whose deadline
// passes, or that is cancelled, returns at once: what it had in flight ends in the queue's own buffers.
//
// Thread-safety: read() from any number of threads; each borrows a queue of a pool for the time of its call.
// Ownership: descriptors and memory are the caller's; descriptors must stay open as long as the reader.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "paramserver/csrc/cold_reader_queue.h"

namespace paramserver {

enum class ReadOutcome : std::uint8_t { kUnread, kDone, kFailed };

// One slot: `bytes` at `offset_in_block` of the block that begins at `block_offset` of the file.
struct SlotRead {
  int fd = -1;
  std::uint32_t block_bytes = 0;  // at most kReadBytesMax
  std::uint64_t block_offset = 0;
  std::uint32_t offset_in_block = 0;
  std::uint32_t bytes = 0;
  std::byte* to = nullptr;  // [bytes]
  ReadOutcome outcome = ReadOutcome::kUnread;
};

struct ReadLimits {
  std::int64_t deadline_ns = std::numeric_limits<std::int64_t>::max();  // CLOCK_MONOTONIC
  const std::atomic<bool>* cancelled = nullptr;                         // null: cannot be cancelled
};

struct ColdReaderStats {
  std::uint64_t reads = 0;        // asked of the system
  std::uint64_t bytes = 0;        // of those reads
  std::uint64_t slots = 0;        // delivered
  std::uint64_t slots_failed = 0; // the system could not read them
  std::uint64_t slots_unread = 0; // deadline, or cancelled
  std::uint64_t in_flight = 0;    // reads, at this moment
};

class ColdReader {
 public:
  struct Options {
    unsigned depth_max = 128;   // reads in flight of one call
    unsigned queues_max = 16;   // calls that read at once; more wait for their turn
    unsigned threads = 32;      // of the pool, where io_uring is refused
    bool uring = true;
  };

  explicit ColdReader(const Options& options);
  ~ColdReader();

  // Memory of a batch, which the caller may keep from call to call.
  class Scratch {
    friend class ColdReader;
    struct Place {
      std::uint64_t key;  // descriptor:24, page:40
      std::uint32_t slot;
    };
    // Slots places[first, end), which one read brings.
    struct Run {
      std::uint32_t first;
      std::uint32_t end;
      std::uint64_t offset;
      std::size_t bytes;
    };
    std::vector<Place> places;
    std::vector<Run> runs;
  };

  // Reads all slots and sets their outcomes.
  void read(SlotRead* slots /*[n]*/, std::size_t n, const ReadLimits& limits, Scratch& scratch) noexcept;

  ColdReaderStats stats() const noexcept;
  // "io_uring" or "threads".
  const char* engine() const noexcept { return uring_ ? "io_uring" : "threads"; }

 private:
  // A queue and what each of its lanes carries.
  struct Lanes {
    std::unique_ptr<ReadQueue> queue;
    std::vector<std::uint32_t> runs;  // by lane, the run in flight, or kNone for one that nobody waits for any more
    std::vector<unsigned> free;
  };

  static void plan(const SlotRead* slots, std::size_t n, Scratch& scratch);
  std::unique_ptr<Lanes> make_lanes();
  void run(SlotRead* slots, const ReadLimits& limits, const Scratch& scratch, Lanes& lanes) noexcept;
  void finish(SlotRead* slots, const Scratch& scratch, std::uint32_t run, const std::byte* buffer,
              std::int64_t result) noexcept;
  std::unique_ptr<Lanes> borrow(const ReadLimits& limits) noexcept;
  void give_back(std::unique_ptr<Lanes> lanes) noexcept;

  const Options options_;
  bool uring_ = false;
  ReadThreads threads_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<Lanes>> idle_;
  unsigned queues_ = 0;
  mutable std::atomic<std::uint64_t> reads_{0};
  mutable std::atomic<std::uint64_t> bytes_{0};
  mutable std::atomic<std::uint64_t> slots_{0};
  mutable std::atomic<std::uint64_t> failed_{0};
  mutable std::atomic<std::uint64_t> unread_{0};
  mutable std::atomic<std::uint64_t> in_flight_{0};
};

}  // namespace paramserver
