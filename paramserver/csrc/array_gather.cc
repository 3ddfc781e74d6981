#include "paramserver/csrc/array_gather.h"

#include <algorithm>

#include "paramserver/csrc/kernels.h"

namespace paramserver {
namespace {

constexpr std::size_t kGroup = 8;
constexpr std::size_t kLag = 2;
constexpr std::size_t kRing = 4;

}  // namespace

ArrayGather::ArrayGather(std::uint64_t rows, std::uint32_t dim) : dim_(dim), region_(rows * dim * 4, true) {
  auto* values = reinterpret_cast<float*>(region_.data());
  for (std::uint64_t r = 0; r < rows; ++r) {
    std::fill_n(values + r * dim, dim, static_cast<float>(r & 0xffffff));
  }
}

void ArrayGather::gather(const std::int64_t* row_numbers, std::size_t n, float* out) const noexcept {
  const std::size_t row_bytes = dim_ * 4;
  const std::byte* rows[kRing][kGroup];
  const Kernels::CopyRows copy = kernels().copy[0][0];
  const std::size_t groups = (n + kGroup - 1) / kGroup;
  for (std::size_t step = 0; step < groups + kLag; ++step) {
    for (std::size_t i = step * kGroup; i < std::min(n, (step + 1) * kGroup); ++i) {
      const std::byte* row = region_.data() + static_cast<std::uint64_t>(row_numbers[i]) * row_bytes;
      rows[step % kRing][i % kGroup] = row;
      for (std::size_t byte = 0; byte < row_bytes; byte += 64) __builtin_prefetch(row + byte);
    }
    if (step < kLag) continue;
    const std::size_t first = (step - kLag) * kGroup;
    copy(rows[(step - kLag) % kRing], std::min(kGroup, n - first), dim_, out + first * dim_);
  }
}

}  // namespace paramserver
