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
      for (std::size_t j = 0; j < dim; ++j) store_element<kType>(to, j, load_element<kStored>(rows[i], j));
    }
  }
}

template <Stored kStored>
void add_rows(const std::byte* const* rows, const float* weights, std::size_t n, std::size_t dim,
              float* sum) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    if (weights == nullptr) {
      for (std::size_t j = 0; j < dim; ++j) sum[j] += load_element<kStored>(rows[i], j);
    } else {
      for (std::size_t j = 0; j < dim; ++j) sum[j] += weights[i] * load_element<kStored>(rows[i], j);
    }
  }
}

template <RowType kType>
void divide_row(const float* sum, float divisor, std::size_t dim, void* out) noexcept {
  for (std::size_t j = 0; j < dim; ++j) store_element<kType>(static_cast<std::byte*>(out), j, sum[j] / divisor);
}

}  // namespace

const Kernels kScalarKernels = {
    "scalar",
    {{copy_rows<Stored::kF32, RowType::kF32>, copy_rows<Stored::kF32, RowType::kF16>,
      copy_rows<Stored::kF32, RowType::kBF16>},
     {copy_rows<Stored::kF16, RowType::kF32>, copy_rows<Stored::kF16, RowType::kF16>,
      copy_rows<Stored::kF16, RowType::kBF16>}},
    {add_rows<Stored::kF32>, add_rows<Stored::kF16>},
    {divide_row<RowType::kF32>, divide_row<RowType::kF16>, divide_row<RowType::kBF16>},
};

}  // namespace paramserver
