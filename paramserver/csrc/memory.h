// One stretch of zeroed anonymous memory, on huge pages where the system allows them.
//
// Ownership: a Region unmaps what it mapped. Thread-safety: immutable after construction.
#pragma once

#include <cstddef>

namespace paramserver {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

class Region {
 public:
  Region() noexcept = default;
  // Throws MemoryExhausted. Pages are taken from the system when first touched, not here.
  Region(std::size_t bytes, bool huge_pages);
  Region(Region&& other) noexcept;
  Region& operator=(Region&& other) noexcept;
  ~Region();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // True when the kernel accepted the advice to back this region with huge pages.
  bool huge() const noexcept { return huge_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool huge_ = false;
};

}  // namespace paramserver
