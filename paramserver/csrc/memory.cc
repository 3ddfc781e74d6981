#include "paramserver/csrc/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <cerrno>
#include <string>
#include <utility>

#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

constexpr std::size_t kPageBytes = 4096;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::byte* map_pages(std::size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw MemoryExhausted("the system refused " + std::to_string(bytes) + " bytes for a table (" +
                          std::strerror(errno) + "): lower rows_hint, or give the process more memory");
  }
  return static_cast<std::byte*>(data);
}

// The kernel backs only aligned 2 MiB stretches with a huge page, and mmap aligns to 4 KiB: map more, trim the ends.
std::byte* map_aligned(std::size_t bytes) {
  std::byte* raw = map_pages(bytes + kHugePageBytes);
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  const std::size_t head = round_up(address, kHugePageBytes) - address;
  if (head != 0) munmap(raw, head);
  if (head != kHugePageBytes) munmap(raw + head + bytes, kHugePageBytes - head);
  return raw + head;
}

}  // namespace

Region::Region(std::size_t bytes, bool huge_pages) {
  if (bytes == 0) return;
  if (huge_pages && bytes >= kHugePageBytes) {
    bytes_ = round_up(bytes, kHugePageBytes);
    data_ = map_aligned(bytes_);
    huge_ = madvise(data_, bytes_, MADV_HUGEPAGE) == 0;
  } else {
    bytes_ = round_up(bytes, kPageBytes);
    data_ = map_pages(bytes_);
  }
}

Region::Region(Region&& other) noexcept { *this = std::move(other); }

Region& Region::operator=(Region&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(huge_, other.huge_);
  return *this;
}

Region::~Region() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace paramserver
