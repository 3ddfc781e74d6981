// Where a table's memory comes from, and one stretch of it.
//
// Everything that readers reach is addressed by offsets from the base of its Memory, so that a table can lie in a file
// that several processes map at different addresses. Anonymous memory has base 0: an offset is then an address.
//
// Ownership: a Region gives back what it took, and keeps its Memory alive. Thread-safety: a Region is immutable after
// construction; a Memory is used by one writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace paramserver {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

class Memory {
 public:
  struct Stretch {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    bool huge = false;  // the kernel accepted the advice to back it with huge pages
  };

  virtual ~Memory() = default;
  // Zeroed memory of at least `bytes`, aligned to a page. Throws MemoryExhausted.
  virtual Stretch take(std::size_t bytes, bool huge_pages) = 0;
  virtual void give_back(const Stretch& stretch) noexcept = 0;
  // Where offset 0 lies in this process.
  virtual std::byte* base() const noexcept = 0;
  // The least that a turn of the table's ReaderGate must last, 0 for memory of this process alone: other processes that
  // read what lies here cannot hold a writer up, so it leaves them time.
  virtual std::int64_t turn_min_ns() const noexcept = 0;
};

// Anonymous memory of this process.
std::shared_ptr<Memory> anonymous_memory();

class Region {
 public:
  Region() noexcept = default;
  // Throws MemoryExhausted. Pages of anonymous memory are taken from the system when first touched, not here.
  Region(std::size_t bytes, bool huge_pages, std::shared_ptr<Memory> memory = anonymous_memory());
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  std::byte* data() const noexcept { return stretch_.data; }
  std::size_t bytes() const noexcept { return stretch_.bytes; }
  bool huge() const noexcept { return stretch_.huge; }
  // Where it begins, for whoever has this memory mapped at another base.
  std::uint64_t offset() const noexcept {
    return reinterpret_cast<std::uintptr_t>(stretch_.data) - reinterpret_cast<std::uintptr_t>(memory_->base());
  }

 private:
  Memory::Stretch stretch_;
  std::shared_ptr<Memory> memory_;
};

}  // namespace paramserver
