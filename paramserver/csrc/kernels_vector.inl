// The vector loops, written once. The including file defines PARAMSERVER_TARGET (the function attribute), Vec, kWidth
// and, with that same attribute, load<Stored>, load_codes, store<RowType>, set1, mul, add and divide.

// Accumulators of one pass over the rows of a bag: with eight, 64 elements of AVX2 stay in registers, and a weight, a
// scale and a bias beside them.
constexpr std::size_t kBlock = 8;

// A stored row as vectors: what load<Stored> is to a row of numbers.
template <Stored kStored>
struct VecRow {
  PARAMSERVER_INLINE VecRow(const std::byte* row, std::size_t /*dim*/) noexcept : bytes(row) {}
  PARAMSERVER_INLINE Vec at(std::size_t j) const noexcept { return load<kStored>(bytes, j); }

  const std::byte* bytes;
};

template <>
struct VecRow<Stored::kInt8> {
  PARAMSERVER_INLINE VecRow(const std::byte* row, std::size_t dim) noexcept
      : bytes(row), scale(set1(f32_at(row + int8_scale_at(dim)))), bias(set1(f32_at(row + int8_scale_at(dim) + 4))) {}
  PARAMSERVER_INLINE Vec at(std::size_t j) const noexcept { return add(mul(load_codes(bytes, j), scale), bias); }

  const std::byte* bytes;
  Vec scale;
  Vec bias;
};

template <Stored kStored, RowType kType>
PARAMSERVER_TARGET void copy_rows(const std::byte* const* rows, std::size_t n, std::size_t dim, void* out) noexcept {
  const std::size_t bytes = dim * row_type_bytes(kType);
  const std::size_t whole = dim - dim % kWidth;
  auto* to = static_cast<std::byte*>(out);
  for (std::size_t i = 0; i < n; ++i, to += bytes) {
    if constexpr (kStored != Stored::kF32 && kSameBytes<kStored, kType>) {
      std::memcpy(to, rows[i], bytes);
      continue;
    }
    const VecRow<kStored> row(rows[i], dim);
    for (std::size_t j = 0; j < whole; j += kWidth) store<kType>(to, j, row.at(j));
    if (whole == dim) continue;
    const StoredRow<kStored> tail(rows[i], dim);
    for (std::size_t j = whole; j < dim; ++j) store_element<kType>(to, j, tail[j]);
  }
}

template <Stored kStored, bool kWeighted, std::size_t kVectors>
PARAMSERVER_TARGET void add_columns(const std::byte* const* rows, const float* weights, std::size_t n, std::size_t dim,
                                    std::size_t column, float* sum) noexcept {
  auto* sums = reinterpret_cast<std::byte*>(sum);
  Vec acc[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) acc[v] = load<Stored::kF32>(sums, column + v * kWidth);
  for (std::size_t i = 0; i < n; ++i) {
    const VecRow<kStored> row(rows[i], dim);
    for (std::size_t v = 0; v < kVectors; ++v) {
      Vec value = row.at(column + v * kWidth);
      if constexpr (kWeighted) value = mul(set1(weights[i]), value);
      acc[v] = add(acc[v], value);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) store<RowType::kF32>(sums, column + v * kWidth, acc[v]);
}

template <Stored kStored, bool kWeighted>
PARAMSERVER_TARGET void add_rows_in_order(const std::byte* const* rows, const float* weights, std::size_t n,
                                          std::size_t dim, float* sum) noexcept {
  std::size_t j = 0;
  for (; j + kBlock * kWidth <= dim; j += kBlock * kWidth) {
    add_columns<kStored, kWeighted, kBlock>(rows, weights, n, dim, j, sum);
  }
  if (j + kBlock / 2 * kWidth <= dim) {
    add_columns<kStored, kWeighted, kBlock / 2>(rows, weights, n, dim, j, sum);
    j += kBlock / 2 * kWidth;
  }
  for (; j + kWidth <= dim; j += kWidth) add_columns<kStored, kWeighted, 1>(rows, weights, n, dim, j, sum);
  for (std::size_t i = 0; i < n && j < dim; ++i) {
    const StoredRow<kStored> row(rows[i], dim);
    for (std::size_t k = j; k < dim; ++k) {
      const float value = row[k];
      sum[k] += kWeighted ? weights[i] * value : value;
    }
  }
}

template <Stored kStored>
PARAMSERVER_TARGET void add_rows(const std::byte* const* rows, const float* weights, std::size_t n, std::size_t dim,
                                 float* sum) noexcept {
  if (weights == nullptr) {
    add_rows_in_order<kStored, false>(rows, weights, n, dim, sum);
  } else {
    add_rows_in_order<kStored, true>(rows, weights, n, dim, sum);
  }
}

template <RowType kType>
PARAMSERVER_TARGET void divide_row(const float* sum, float divisor, std::size_t dim, void* out) noexcept {
  const auto* sums = reinterpret_cast<const std::byte*>(sum);
  auto* to = static_cast<std::byte*>(out);
  const std::size_t whole = dim - dim % kWidth;
  for (std::size_t j = 0; j < whole; j += kWidth) {
    store<kType>(to, j, divide(load<Stored::kF32>(sums, j), set1(divisor)));
  }
  for (std::size_t j = whole; j < dim; ++j) store_element<kType>(to, j, sum[j] / divisor);
}

#include "paramserver/csrc/kernel_set.inl"
