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

class AnonymousMemory final : public Memory {
 public:
  Stretch take(std::size_t bytes, bool huge_pages) override {
    Stretch stretch;
    if (huge_pages && bytes >= kHugePageBytes) {
      stretch.bytes = round_up(bytes, kHugePageBytes);
      stretch.data = map_aligned(stretch.bytes);
      stretch.huge = madvise(stretch.data, stretch.bytes, MADV_HUGEPAGE) == 0;
    } else {
      stretch.bytes = round_up(bytes, kPageBytes);
      stretch.data = map_pages(stretch.bytes);
    }
    return stretch;
  }
  void give_back(const Stretch& stretch) noexcept override { munmap(stretch.data, stretch.bytes); }
  std::byte* base() const noexcept override { return nullptr; }
  std::int64_t turn_min_ns() const noexcept override { return 0; }
};

}  // namespace

std::shared_ptr<Memory> anonymous_memory() {
  static const auto memory = std::make_shared<AnonymousMemory>();
  return memory;
}

Region::Region(std::size_t bytes, bool huge_pages, std::shared_ptr<Memory> memory) : memory_(std::move(memory)) {
  if (bytes != 0) stretch_ = memory_->take(bytes, huge_pages);
}

Region::Region(Region&& other) noexcept { *this = std::move(other); }

Region& Region::operator=(Region&& other) noexcept {
  std::swap(stretch_, other.stretch_);
  std::swap(memory_, other.memory_);
  return *this;
}

Region::~Region() {
  if (stretch_.data != nullptr) memory_->give_back(stretch_);
}

}  // namespace paramserver

