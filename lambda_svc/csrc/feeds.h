// What executables that use feeds in place share: the check of a feed, copies of those that are not aligned, and the
// hold on the others while a run reads them.
//
// Thread-safety: each object belongs to one run at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "lambda_svc/csrc/errors.h"
#include "lambda_svc/csrc/executable.h"

namespace lambda_svc {

// Throws EngineError naming the input when the feed's shape is not the signature's, or its bytes are not of its shape.
inline void check_feed(const TensorSpec& spec, const Feed& feed) {
  bool fits = static_cast<std::size_t>(feed.rank) == spec.shape.size();
  for (int d = 0; fits && d < feed.rank; ++d) fits = spec.shape[d] < 0 || spec.shape[d] == feed.dims[d];
  if (!fits) {
    throw EngineError("input " + spec.name + ": got shape " + shape_text({feed.dims, feed.dims + feed.rank}) +
                      "; the signature says " + shape_text(spec.shape));
  }
  std::size_t bytes = spec.dtype == DType::kI64 ? 8 : 4;
  for (int d = 0; d < feed.rank; ++d) bytes *= static_cast<std::size_t>(feed.dims[d]);
  if (bytes == feed.bytes) return;
  throw EngineError("input " + spec.name + ": got " + std::to_string(feed.bytes) + " bytes; its shape takes " +
                    std::to_string(bytes));
}

// 64-byte aligned memory that only grows.
class AlignedBuffer {
 public:
  // The feed's own memory when it is aligned, else a copy here, whose bytes are counted.
  const void* aligned(const Feed& feed, RunStats* stats) {
    if (reinterpret_cast<std::uintptr_t>(feed.data) % kFeedAlignment == 0) return feed.data;
    if (capacity_ < feed.bytes) {
      memory_.reset(new (std::align_val_t{kFeedAlignment}) std::byte[feed.bytes]);
      capacity_ = feed.bytes;
    }
    if (stats != nullptr) stats->bytes_copied += feed.bytes;
    return std::memcpy(memory_.get(), feed.data, feed.bytes);
  }

 private:
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kFeedAlignment}); }
  };
  std::unique_ptr<std::byte[], Delete> memory_;
  std::size_t capacity_ = 0;
};

// Feeds of one run: acquired one by one, released together when the run is over.
class HeldFeeds {
 public:
  explicit HeldFeeds(const FeedRelease& release) : release_(release) {}
  ~HeldFeeds() {
    for (; release_.release != nullptr && feeds_ > 0; --feeds_) release_.release(release_.owner);
  }
  HeldFeeds(const HeldFeeds&) = delete;
  void add() {
    if (release_.acquire != nullptr) release_.acquire(release_.owner);
    ++feeds_;
  }

 private:
  const FeedRelease& release_;
  std::size_t feeds_ = 0;
};

}  // namespace lambda_svc
