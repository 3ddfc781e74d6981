// One set of kernels out of the templates of the including file: copy_rows, add_rows and divide_row.
template <Stored kStored>
constexpr void set_stored(Kernels& set) {
  constexpr int kRow = static_cast<int>(kStored);
  set.copy[kRow][static_cast<int>(RowType::kF32)] = copy_rows<kStored, RowType::kF32>;
  set.copy[kRow][static_cast<int>(RowType::kF16)] = copy_rows<kStored, RowType::kF16>;
  set.copy[kRow][static_cast<int>(RowType::kBF16)] = copy_rows<kStored, RowType::kBF16>;
  set.add[kRow] = add_rows<kStored>;
}

constexpr Kernels kernel_set(const char* name) {
  Kernels set{name, {}, {}, {divide_row<RowType::kF32>, divide_row<RowType::kF16>, divide_row<RowType::kBF16>}};
  set_stored<Stored::kF32>(set);
  set_stored<Stored::kF16>(set);
  set_stored<Stored::kBF16>(set);
  set_stored<Stored::kInt8>(set);
  return set;
}
