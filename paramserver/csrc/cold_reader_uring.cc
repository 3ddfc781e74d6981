// io_uring without liburing: three system calls and two rings of shared memory.
//
// The kernel reads submissions from our tail and writes completions up to its tail; each side publishes its index
// with a release store and reads the other's with an acquire load. One thread at a time uses a queue, so nothing else
// is needed.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "paramserver/csrc/cold_reader_queue.h"
#include "paramserver/csrc/memory.h"
#include "paramserver/csrc/slot_file.h"

namespace paramserver {
namespace {

// Memory that the kernel shares through the ring's descriptor.
class Shared {
 public:
  Shared(int fd, std::size_t bytes, std::uint64_t what) noexcept
      : data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, static_cast<off_t>(what))),
        bytes_(bytes) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    if (ok()) munmap(data_, bytes_);
  }
  bool ok() const noexcept { return data_ != MAP_FAILED; }
  template <class T>
  T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + offset);
  }

 private:
  void* data_;
  std::size_t bytes_;
};

class UringQueue final : public ReadQueue {
 public:
  UringQueue(FileDescriptor ring, const io_uring_params& p, unsigned lanes)
      : ring_(std::move(ring)),
        submissions_(ring_.get(), p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING),
        completions_(ring_.get(), p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING),
        entries_(ring_.get(), p.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES),
        buffers_(lanes * kReadBytesMax, false) {
    if (!ok()) return;
    sq_tail_ = submissions_.at<unsigned>(p.sq_off.tail);
    sq_mask_ = *submissions_.at<unsigned>(p.sq_off.ring_mask);
    sq_array_ = submissions_.at<unsigned>(p.sq_off.array);
    cq_head_ = completions_.at<unsigned>(p.cq_off.head);
    cq_tail_ = completions_.at<unsigned>(p.cq_off.tail);
    cq_mask_ = *completions_.at<unsigned>(p.cq_off.ring_mask);
    cqes_ = completions_.at<io_uring_cqe>(p.cq_off.cqes);
  }

  // The kernel may still be writing into the buffers.
  ~UringQueue() override {
    Completion done[16];
    while (in_flight_ != 0) reap(done, 16, std::int64_t{1} << 40);
  }

  bool ok() const noexcept { return submissions_.ok() && completions_.ok() && entries_.ok(); }

  const std::byte* buffer(unsigned lane) const noexcept override { return buffers_.data() + lane * kReadBytesMax; }

  void start(unsigned lane, int fd, std::uint64_t offset, std::size_t bytes) noexcept override {
    const unsigned tail = *sq_tail_;
    io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[tail & sq_mask_];
    std::memset(&entry, 0, sizeof(entry));
    entry.opcode = IORING_OP_READ;
    entry.fd = fd;
    entry.off = offset;
    entry.addr = reinterpret_cast<std::uintptr_t>(buffer(lane));
    entry.len = static_cast<unsigned>(bytes);
    entry.user_data = lane;
    sq_array_[tail & sq_mask_] = tail & sq_mask_;
    __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
    ++unsubmitted_;
    ++in_flight_;
  }

  std::size_t reap(Completion* out, std::size_t max, std::int64_t patience_ns) noexcept override {
    // Submitting may itself complete reads, so the ring is looked at before and after; one call both submits and waits.
    if (unsubmitted_ == 0) {
      if (const std::size_t ready = take(out, max); ready != 0) return ready;
    }
    enter(patience_ns);
    return take(out, max);
  }

 private:
  void enter(std::int64_t patience_ns) noexcept {
    const __kernel_timespec patience{.tv_sec = patience_ns / 1'000'000'000, .tv_nsec = patience_ns % 1'000'000'000};
    io_uring_getevents_arg argument{};
    argument.ts = reinterpret_cast<std::uintptr_t>(&patience);
    const long taken = syscall(__NR_io_uring_enter, ring_.get(), unsubmitted_, 1u,
                               IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof(argument));
    // What an interrupted or refused call left is submitted by the next.
    if (taken > 0) unsubmitted_ -= static_cast<unsigned>(taken);
  }

  std::size_t take(Completion* out, std::size_t max) noexcept {
    const unsigned tail = __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE);
    unsigned head = *cq_head_;
    std::size_t got = 0;
    for (; head != tail && got < max; ++head) {
      const io_uring_cqe& entry = cqes_[head & cq_mask_];
      out[got++] = {static_cast<unsigned>(entry.user_data), entry.res};
    }
    __atomic_store_n(cq_head_, head, __ATOMIC_RELEASE);
    in_flight_ -= static_cast<unsigned>(got);
    return got;
  }

  FileDescriptor ring_;
  Shared submissions_;
  Shared completions_;
  Shared entries_;
  Region buffers_;
  unsigned* sq_tail_ = nullptr;
  unsigned* sq_array_ = nullptr;
  unsigned* cq_head_ = nullptr;
  const unsigned* cq_tail_ = nullptr;
  const io_uring_cqe* cqes_ = nullptr;
  unsigned sq_mask_ = 0;
  unsigned cq_mask_ = 0;
  unsigned unsubmitted_ = 0;
  unsigned in_flight_ = 0;
};

}  // namespace

std::unique_ptr<ReadQueue> make_uring_queue(unsigned lanes) {
  io_uring_params parameters{};
  FileDescriptor ring(static_cast<int>(syscall(__NR_io_uring_setup, lanes, &parameters)));
  if (ring.get() < 0 || (parameters.features & IORING_FEAT_EXT_ARG) == 0) return nullptr;
  auto queue = std::make_unique<UringQueue>(std::move(ring), parameters, lanes);
  if (!queue->ok()) return nullptr;
  return queue;
}

}  // namespace paramserver
