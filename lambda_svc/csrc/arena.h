// The pooled memory that a request's tensors live in: one block per request, leased from size classes, so that a
// steady load allocates nothing.
//
// Thread-safety: everything here may be called from any number of threads at once.
// Ownership: a lease is reference counted. The request holds one reference and every tensor over the block holds
// another, given up by the tensor's deallocator; the block goes back to the pool when the last is gone, since an
// engine's output may alias a fed input. A leased block keeps its arena alive.
// Layout: blocks are 64-byte aligned; size class c holds block_bytes * 2^(c/4) * (1 + (c%4)/4) bytes, so that at most
// a fifth of a new block is unused. Blocks of 2 MiB and more are mapped on their own, on huge pages where allowed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lambda_svc/csrc/executable.h"

namespace lambda_svc {

class Arena;

struct ArenaOptions {
  std::size_t bytes_max = std::size_t{1} << 30;     // leased and pooled together
  std::size_t block_bytes = std::size_t{64} << 10;  // the smallest block; a power of two of at least 4096
  bool huge_pages = true;
};

struct ArenaStats {
  std::uint64_t leases = 0;         // blocks out now
  std::uint64_t leases_total = 0;   // blocks ever handed out
  std::uint64_t blocks_new = 0;     // of those, taken from the system rather than from the pool
  std::uint64_t leased_bytes = 0;
  std::uint64_t pooled_bytes = 0;
  std::uint64_t peak_bytes = 0;     // the most that was ever leased at once
  std::uint64_t exhausted = 0;      // leases refused
};

struct ArenaBlock {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  unsigned size_class = 0;
  bool mapped = false;
  std::atomic<std::uint32_t> references{0};
  std::shared_ptr<Arena> arena;  // set while leased
};

// One reference to a leased block. Move-only; `release()` describes to an engine how to take more of them.
class Lease {
 public:
  Lease() = default;
  explicit Lease(ArenaBlock* block) : block_(block) {}
  Lease(Lease&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Lease();

  std::byte* data() const { return block_->data; }
  std::size_t bytes() const { return block_->bytes; }
  FeedRelease release() const;

 private:
  ArenaBlock* block_ = nullptr;
};

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  static std::shared_ptr<Arena> make(const ArenaOptions& options);  // throws std::invalid_argument
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // At least `bytes` bytes of unspecified content. Throws ArenaExhausted when that would pass bytes_max.
  Lease lease(std::size_t bytes);

  ArenaStats stats() const;
  // Whether the address lies in a block of this arena, leased or pooled.
  bool owns(const void* address) const;
  // Gives every pooled block back to the system.
  void trim();

 private:
  friend void give_back(ArenaBlock* block);
  static constexpr unsigned kClasses = 160;

  explicit Arena(const ArenaOptions& options) : options_(options) {}
  std::size_t class_bytes(unsigned size_class) const;
  unsigned class_of(std::size_t bytes) const;
  ArenaBlock* take_pooled(unsigned size_class);
  ArenaBlock* allocate(unsigned size_class);
  void evict(std::size_t wanted);
  void drop(ArenaBlock* block);

  const ArenaOptions options_;
  mutable std::mutex mutex_;
  std::array<std::vector<ArenaBlock*>, kClasses> pools_;
  std::vector<ArenaBlock*> blocks_;  // all of them
  ArenaStats stats_;
};

}  // namespace lambda_svc
