#include "lambda_svc/csrc/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include "lambda_svc/csrc/errors.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace lambda_svc {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* map_aligned(std::size_t bytes, bool huge_pages) {
  const std::size_t reserve = bytes + kHugePage;
  void* raw = mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const auto aligned = round_up(start, kHugePage);
  if (aligned > start) munmap(raw, aligned - start);
  if (start + reserve > aligned + bytes) {
    munmap(reinterpret_cast<void*>(aligned + bytes), start + reserve - aligned - bytes);
  }
  void* data = reinterpret_cast<void*>(aligned);
  // A refusal leaves ordinary pages, which are as correct.
  if (huge_pages) (void)madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

void acquire(void* owner) { static_cast<ArenaBlock*>(owner)->references.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

void give_back(ArenaBlock* block) {
  if (block->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<Arena> arena = std::move(block->arena);
  const std::lock_guard lock(arena->mutex_);
  ASAN_POISON_MEMORY_REGION(block->data, block->bytes);
  arena->pools_[block->size_class].push_back(block);
  arena->stats_.leases -= 1;
  arena->stats_.leased_bytes -= block->bytes;
  arena->stats_.pooled_bytes += block->bytes;
}

Lease::~Lease() {
  if (block_ != nullptr) give_back(block_);
}

FeedRelease Lease::release() const {
  return {acquire, [](void* owner) { give_back(static_cast<ArenaBlock*>(owner)); }, block_};
}

std::shared_ptr<Arena> Arena::make(const ArenaOptions& options) {
  const std::size_t block = options.block_bytes;
  if (block < 4096 || (block & (block - 1)) != 0) {
    throw std::invalid_argument("block_bytes: got " + std::to_string(block) +
                                "; expected a power of two of at least 4096");
  }
  if (options.bytes_max < block) {
    throw std::invalid_argument("bytes_max: got " + std::to_string(options.bytes_max) +
                                "; expected at least block_bytes, " + std::to_string(block));
  }
  return std::shared_ptr<Arena>(new Arena(options));
}

Arena::~Arena() { trim(); }

std::size_t Arena::class_bytes(unsigned size_class) const {
  return (options_.block_bytes / 4 * (4 + size_class % 4)) << (size_class / 4);
}

unsigned Arena::class_of(std::size_t bytes) const {
  unsigned size_class = 0;
  while (size_class + 1 < kClasses && class_bytes(size_class) < bytes) ++size_class;
  return size_class;
}

// A block up to twice as large will do: mixed sizes then share what is pooled instead of evicting each other.
ArenaBlock* Arena::take_pooled(unsigned size_class) {
  const unsigned last = std::min(size_class + 4, kClasses - 1);
  for (unsigned c = size_class; c <= last; ++c) {
    if (pools_[c].empty()) continue;
    ArenaBlock* block = pools_[c].back();
    pools_[c].pop_back();
    stats_.pooled_bytes -= block->bytes;
    return block;
  }
  return nullptr;
}

ArenaBlock* Arena::allocate(unsigned size_class) {
  auto block = std::make_unique<ArenaBlock>();
  block->size_class = size_class;
  block->bytes = class_bytes(size_class);
  block->mapped = block->bytes >= kHugePage;
  blocks_.reserve(blocks_.size() + 1);
  pools_[size_class].reserve(blocks_.size() + 1);  // so that giving back never allocates
  void* data = block->mapped ? map_aligned(block->bytes, options_.huge_pages)
                             : std::aligned_alloc(kFeedAlignment, block->bytes);
  if (data == nullptr) throw std::bad_alloc();
  block->data = static_cast<std::byte*>(data);
  blocks_.push_back(block.get());
  stats_.blocks_new += 1;
  return block.release();
}

void Arena::evict(std::size_t wanted) {
  for (unsigned c = kClasses; c-- > 0 && stats_.leased_bytes + stats_.pooled_bytes + wanted > options_.bytes_max;) {
    while (!pools_[c].empty() && stats_.leased_bytes + stats_.pooled_bytes + wanted > options_.bytes_max) {
      drop(pools_[c].back());
      pools_[c].pop_back();
    }
  }
}

void Arena::drop(ArenaBlock* block) {
  stats_.pooled_bytes -= block->bytes;
  ASAN_UNPOISON_MEMORY_REGION(block->data, block->bytes);
  if (block->mapped) {
    munmap(block->data, block->bytes);
  } else {
    std::free(block->data);
  }
  blocks_.erase(std::find(blocks_.begin(), blocks_.end(), block));
  delete block;
}

Lease Arena::lease(std::size_t bytes) {
  if (bytes > options_.bytes_max) bytes = options_.bytes_max + 1;
  const unsigned size_class = class_of(bytes);
  const std::lock_guard lock(mutex_);
  ArenaBlock* block = take_pooled(size_class);
  if (block == nullptr) {
    const std::size_t wanted = class_bytes(size_class);
    evict(wanted);
    if (stats_.leased_bytes + stats_.pooled_bytes + wanted > options_.bytes_max) {
      stats_.exhausted += 1;
      throw ArenaExhausted("arena: a request wants a block of " + std::to_string(wanted) + " bytes while " +
                           std::to_string(stats_.leased_bytes) + " of " + std::to_string(options_.bytes_max) +
                           " are leased; send fewer or smaller requests at once, or raise bytes_max");
    }
    block = allocate(size_class);
  }
  ASAN_UNPOISON_MEMORY_REGION(block->data, block->bytes);
  block->references.store(1, std::memory_order_relaxed);
  block->arena = shared_from_this();
  stats_.leases += 1;
  stats_.leases_total += 1;
  stats_.leased_bytes += block->bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.leased_bytes);
  return Lease(block);
}

ArenaStats Arena::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

bool Arena::owns(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto* at = static_cast<const std::byte*>(address);
  return std::any_of(blocks_.begin(), blocks_.end(), [at](const ArenaBlock* block) {
    return at >= block->data && at < block->data + block->bytes;
  });
}

void Arena::trim() {
  const std::lock_guard lock(mutex_);
  for (auto& pool : pools_) {
    for (ArenaBlock* block : pool) drop(block);
    pool.clear();
  }
}

}  // namespace lambda_svc
