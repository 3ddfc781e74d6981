// The vector loops, written once. The including file defines PARAMSERVER_TARGET (the function attribute), Vec, kWidth
// and, with that same attribute, load<Stored>, store<RowType>, set1, mul, add and divide.

// Four accumulators: 32 elements of AVX2 stay in registers over all rows of a bag.
constexpr std::size_t kBlock = 4;

template <Stored kStored, RowType kType>
PARAMSERVER_TARGET void copy_rows(const std::byte* const* rows, std::size_t n, std::size_t dim, void* out) noexcept {
  const std::size_t bytes = dim * row_type_bytes(kType);
  const std::size_t whole = dim - dim % kWidth;
  auto* to = static_cast<std::byte*>(out);
  for (std::size_t i = 0; i < n; ++i, to += bytes) {
    const std::byte* row = rows[i];
    if constexpr (kStored == Stored::kF16 && kSameBytes<kStored, kType>) {
      std::memcpy(to, row, bytes);
      continue;
    }
    for (std::size_t j = 0; j < whole; j += kWidth) store<kType>(to, j, load<kStored>(row, j));
    for (std::size_t j = whole; j < dim; ++j) store_element<kType>(to, j, load_element<kStored>(row, j));
  }
}

template <Stored kStored, bool kWeighted, std::size_t kVectors>
PARAMSERVER_TARGET void add_columns(const std::byte* const* rows, const float* weights, std::size_t n,
                                    std::size_t column, float* sum) noexcept {
  auto* sums = reinterpret_cast<std::byte*>(sum);
  Vec acc[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) acc[v] = load<Stored::kF32>(sums, column + v * kWidth);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      Vec value = load<kStored>(rows[i], column + v * kWidth);
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
    add_columns<kStored, kWeighted, kBlock>(rows, weights, n, j, sum);
  }
  for (; j + kWidth <= dim; j += kWidth) add_columns<kStored, kWeighted, 1>(rows, weights, n, j, sum);
  for (std::size_t i = 0; i < n && j < dim; ++i) {
    for (std::size_t k = j; k < dim; ++k) {
      const float value = load_element<kStored>(rows[i], k);
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

constexpr Kernels vector_kernels(const char* name) {
  return {
      name,
      {{copy_rows<Stored::kF32, RowType::kF32>, copy_rows<Stored::kF32, RowType::kF16>,
        copy_rows<Stored::kF32, RowType::kBF16>},
       {copy_rows<Stored::kF16, RowType::kF32>, copy_rows<Stored::kF16, RowType::kF16>,
        copy_rows<Stored::kF16, RowType::kBF16>}},
      {add_rows<Stored::kF32>, add_rows<Stored::kF16>},
      {divide_row<RowType::kF32>, divide_row<RowType::kF16>, divide_row<RowType::kBF16>},
  };
}
