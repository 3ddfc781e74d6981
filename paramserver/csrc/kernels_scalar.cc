#include <cstring>

#include "paramserver/csrc/elements.h"
#include "paramserver/csrc/kernels.h"

namespace paramserver {
namespace {

template <Stored kStored, RowType kType>
void copy_rows(const std::byte* const* rows, std::size_t n, std::size_t dim, void* out) noexcept {
  const std::size_t bytes = dim * row_type_bytes(kType);
  auto* to = static_cast<std::byte*>(out);
  for (std::size_t i = 0; i < n; ++i, to += bytes) {
    if constexpr (kSameBytes<kStored, kType>) {
      std::memcpy(to, rows[i], bytes);
    } else {
      const StoredRow<kStored> row(rows[i], dim);
      for (std::size_t j = 0; j < dim; ++j) store_element<kType>(to, j, row[j]);
    }
  }
}

template <Stored kStored>
void add_rows(const std::byte* const* rows, const float* weights, std::size_t n, std::size_t dim,
              float* sum) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const StoredRow<kStored> row(rows[i], dim);
    if (weights == nullptr) {
      for (std::size_t j = 0; j < dim; ++j) sum[j] += row[j];
    } else {
      for (std::size_t j = 0; j < dim; ++j) sum[j] += weights[i] * row[j];
    }
  }
}

template <RowType kType>
void divide_row(const float* sum, float divisor, std::size_t dim, void* out) noexcept {
  for (std::size_t j = 0; j < dim; ++j) store_element<kType>(static_cast<std::byte*>(out), j, sum[j] / divisor);
}

#include "paramserver/csrc/kernel_set.inl"

}  // namespace

const Kernels kScalarKernels = kernel_set("scalar");

}  // namespace paramserver
