#include "paramserver/csrc/array_gather.h"

#include <algorithm>
#include <cstring>

#include "paramserver/csrc/hash.h"
#include "paramserver/csrc/kernels.h"

namespace paramserver {
namespace {

constexpr std::size_t kGroup = 8;
constexpr std::size_t kLag = 2;
constexpr std::size_t kRing = 8;
static_assert(kRing > 2 * kLag);
constexpr std::size_t kLineBytes = 64;
// An index's line holds four ids and is taken to seven tenths when it is new.
constexpr std::uint64_t lines_for(std::uint64_t rows) noexcept { return rows * 10 / (7 * 4) + 1; }

}  // namespace

ArrayGather::ArrayGather(std::uint64_t rows, std::uint32_t dim)
    : dim_(dim), region_(rows * dim * 4, true), lines_(lines_for(rows)), index_(lines_ * kLineBytes, true) {
  auto* values = reinterpret_cast<float*>(region_.data());
  for (std::uint64_t r = 0; r < rows; ++r) {
    std::fill_n(values + r * dim, dim, static_cast<float>(r & 0xffffff));
  }
  std::memset(index_.data(), 0, index_.bytes());  // pages of its own, not the system's one page of zeros
}

void ArrayGather::gather(const std::int64_t* row_numbers, std::size_t n, float* out) const noexcept {
  const std::byte* rows[kRing][kGroup];
  const Kernels::CopyRows copy = kernels().copy[0][0];
  const std::size_t groups = (n + kGroup - 1) / kGroup;
  for (std::size_t step = 0; step < groups + kLag; ++step) {
    for (std::size_t i = step * kGroup; i < std::min(n, (step + 1) * kGroup); ++i) {
      rows[step % kRing][i % kGroup] = fetched(row_numbers[i]);
    }
    if (step < kLag) continue;
    const std::size_t first = (step - kLag) * kGroup;
    copy(rows[(step - kLag) % kRing], std::min(kGroup, n - first), dim_, out + first * dim_);
  }
}

void ArrayGather::gather_two_pages(const std::int64_t* row_numbers, std::size_t n, float* out) const noexcept {
  const std::byte* rows[kRing][kGroup];
  const Kernels::CopyRows copy = kernels().copy[0][0];
  const std::size_t groups = (n + kGroup - 1) / kGroup;
  for (std::size_t step = 0; step < groups + 2 * kLag; ++step) {
    for (std::size_t i = step * kGroup; i < std::min(n, (step + 1) * kGroup); ++i) {
      rows[step % kRing][i % kGroup] = line_of(row_numbers[i]);
      __builtin_prefetch(rows[step % kRing][i % kGroup]);
    }
    if (const std::size_t group = step - kLag; step >= kLag && group < groups) {
      for (std::size_t i = group * kGroup; i < std::min(n, (group + 1) * kGroup); ++i) {
        std::int64_t moved;  // 0: what an index would have said
        std::memcpy(&moved, rows[group % kRing][i % kGroup], sizeof(moved));
        rows[group % kRing][i % kGroup] = fetched(row_numbers[i] + moved);
      }
    }
    if (step < 2 * kLag) continue;
    const std::size_t first = (step - 2 * kLag) * kGroup;
    copy(rows[(step - 2 * kLag) % kRing], std::min(kGroup, n - first), dim_, out + first * dim_);
  }
}

const std::byte* ArrayGather::fetched(std::int64_t row_number) const noexcept {
  const std::size_t row_bytes = dim_ * 4;
  const std::byte* row = region_.data() + static_cast<std::uint64_t>(row_number) * row_bytes;
  for (std::size_t byte = 0; byte < row_bytes; byte += kLineBytes) __builtin_prefetch(row + byte);
  return row;
}

const std::byte* ArrayGather::line_of(std::int64_t row_number) const noexcept {
  return index_.data() + home_line(row_number, lines_) * kLineBytes;
}

}  // namespace paramserver
