#include "paramserver/csrc/kernels.h"

#include <cstdlib>
#include <string>

#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

bool cpu_has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }
bool cpu_has_avx512() { return cpu_has_avx2() && __builtin_cpu_supports("avx512f"); }

}  // namespace

void Kernels::store(Stored stored, const float* row, std::size_t dim, std::byte* out) const noexcept {
  if (stored == Stored::kInt8) return quantize_row(row, dim, out);
  const auto* bytes = reinterpret_cast<const std::byte*>(row);
  copy[static_cast<int>(Stored::kF32)][static_cast<int>(stored)](&bytes, 1, dim, out);
}

void store_rows(const Kernels& kernels, Stored stored, const float* rows, std::size_t n, std::size_t dim,
                std::byte* out) {
  for (std::size_t i = 0; i < n; ++i, rows += dim, out += stored_row_bytes(stored, dim)) {
    if (!row_fits(stored, rows, dim)) [[unlikely]] {
      throw RowValueError("rows[" + std::to_string(i) + "]: " + row_fault(stored, rows, dim));
    }
    kernels.store(stored, rows, dim, out);
  }
}

void load_rows(const Kernels& kernels, Stored stored, const std::byte* rows, std::size_t n, std::size_t dim,
               float* out) noexcept {
  const Kernels::CopyRows copy = kernels.copy[static_cast<int>(stored)][static_cast<int>(RowType::kF32)];
  for (std::size_t i = 0; i < n; ++i, rows += stored_row_bytes(stored, dim), out += dim) copy(&rows, 1, dim, out);
}

const Kernels& choose_kernels(const char* wanted) {
  __builtin_cpu_init();
  const std::string name = wanted == nullptr ? "" : wanted;
  if (name.empty()) return cpu_has_avx512() ? kAvx512Kernels : cpu_has_avx2() ? kAvx2Kernels : kScalarKernels;
  if (name == "scalar") return kScalarKernels;
  if (name == "avx2" && cpu_has_avx2()) return kAvx2Kernels;
  if (name == "avx512" && cpu_has_avx512()) return kAvx512Kernels;
  if (name == "avx2" || name == "avx512") {
    throw InstructionSetError("instruction set '" + name + "' was asked for (by argument or PARAMSERVER_ISA), but this "
                              "CPU lacks it: ask for none to use " + choose_kernels("").name);
  }
  throw InstructionSetError("instruction set '" + name + "' was asked for (by argument or PARAMSERVER_ISA), expected "
                            "scalar, avx2 or avx512");
}

const Kernels& kernels() {
  static const Kernels& chosen = choose_kernels(std::getenv("PARAMSERVER_ISA"));
  return chosen;
}

}  // namespace paramserver
