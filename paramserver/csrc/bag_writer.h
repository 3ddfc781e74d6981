// Pools bags whose rows stream through it in the order of their ids: the one loop behind every lookup_pooled, so that a
// table, a tier, a cache and a remote client give the same bits.
//
// Thread-safety: a BagWriter belongs to one call. Ownership: it keeps nothing but the pointers it was given.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/row_source.h"

namespace paramserver {

// Numbers in a row, at most.
inline constexpr std::uint32_t kDimMax = 4096;

// Divides by zero weights as if they were absent: the bag is then exactly 0, not NaN.
inline float divisor_of(Pooling mode, const float* weights, std::size_t n) noexcept {
  if (mode == Pooling::kSum) return 1.0f;
  float total = weights == nullptr ? static_cast<float>(n) : 0.0f;
  if (weights != nullptr) {
    for (std::size_t i = 0; i < n; ++i) total += mode == Pooling::kMean ? weights[i] : weights[i] * weights[i];
  }
  return mode == Pooling::kMean ? total : std::sqrt(total);
}

class BagWriter {
 public:
  BagWriter(const Kernels& kernels, Stored stored, std::size_t dim, const std::int32_t* offsets, std::size_t bags,
            Pooling mode, const float* weights, RowType out_type, void* out) noexcept
      : add_(kernels.add[static_cast<int>(stored)]),
        divide_(kernels.divide[static_cast<int>(out_type)]),
        dim_(dim), offsets_(offsets), bags_(bags), mode_(mode), weights_(weights),
        bag_bytes_(dim * row_type_bytes(out_type)), out_(static_cast<std::byte*>(out)) {
    begin();
  }

  // Forgets what was taken.
  void restart() noexcept {
    bag_ = 0;
    begin();
  }

  // The next n rows of the ids, `first` being the place of rows[0] among all ids.
  void take(const std::byte* const* rows, std::size_t first, std::size_t n) noexcept {
    for (std::size_t done = 0; done < n;) {
      while (first + done == end_of_bag()) finish();
      const std::size_t here = std::min(n - done, end_of_bag() - (first + done));
      add_(rows + done, weights_ == nullptr ? nullptr : weights_ + first + done, here, dim_, sum_);
      done += here;
    }
  }

  // Writes what is left, trailing empty bags included.
  void close() noexcept {
    while (bag_ < bags_) finish();
  }

 private:
  std::size_t end_of_bag() const noexcept { return static_cast<std::size_t>(offsets_[bag_ + 1]); }

  void begin() noexcept {
    if (bag_ < bags_) std::fill_n(sum_, dim_, 0.0f);
  }

  void finish() noexcept {
    const auto first = static_cast<std::size_t>(offsets_[bag_]);
    const std::size_t n = end_of_bag() - first;
    std::byte* to = out_ + bag_ * bag_bytes_;
    const float divisor = n == 0 ? 0.0f : divisor_of(mode_, weights_ == nullptr ? nullptr : weights_ + first, n);
    if (divisor == 0.0f) {
      std::memset(to, 0, bag_bytes_);
    } else {
      divide_(sum_, divisor, dim_, to);
    }
    ++bag_;
    begin();
  }

  Kernels::AddRows add_;
  Kernels::DivideRow divide_;
  std::size_t dim_;
  const std::int32_t* offsets_;
  std::size_t bags_;
  Pooling mode_;
  const float* weights_;
  std::size_t bag_bytes_;
  std::byte* out_;
  std::size_t bag_ = 0;
  alignas(64) float sum_[kDimMax];
};

}  // namespace paramserver
