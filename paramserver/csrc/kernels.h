// The loops over row elements, one set per instruction set, chosen once per process.
//
// All sets give the same bits: sums run in float32, element by element, in the order of the rows, and every product is
// rounded before it is added (the build forbids contraction into FMA, which rounds once less). One row adds
//   sum[j] = sum[j] + (weight * element[j])        element[j] of an int8 row being (code[j] * scale) + bias
// so pooling stored rows gives what pooling their float32 copies gives, here or behind a remote client. Folding the
// weight into scale and bias would save a multiplication and lose that.
// "scalar" is baseline x86-64, "avx2" needs AVX2 and F16C, "avx512" needs AVX-512F beside them. Tests run
// the sets that their machine has and name those it lacks.
// Thread-safety: all functions are pure. None keeps a pointer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/row_format.h"
#include "paramserver/csrc/row_source.h"

namespace paramserver {

constexpr std::size_t row_type_bytes(RowType type) noexcept { return type == RowType::kF32 ? 4 : 2; }

struct Kernels {
  // Converts rows[i][0 .. dim) to out[i, 0 .. dim).
  using CopyRows = void (*)(const std::byte* const* rows /*[n]*/, std::size_t n, std::size_t dim,
                            void* out /*[n, dim]*/) noexcept;
  // sum[j] += weights[i] * rows[i][j], for i in order; null weights add the rows as they are.
  using AddRows = void (*)(const std::byte* const* rows /*[n]*/, const float* weights /*[n] or null*/, std::size_t n,
                           std::size_t dim, float* sum /*[dim]*/) noexcept;
  // out[j] = sum[j] / divisor. `out` may be `sum`.
  using DivideRow = void (*)(const float* sum /*[dim]*/, float divisor, std::size_t dim, void* out /*[dim]*/) noexcept;

  const char* name;
  CopyRows copy[kStoredTypes][3];  // [Stored][RowType]
  AddRows add[kStoredTypes];       // [Stored]
  DivideRow divide[3];             // [RowType]

  // Rounds one row to the stored type, padding included. The row must fit (row_format.h).
  void store(Stored stored, const float* row /*[dim]*/, std::size_t dim,
             std::byte* out /*[stored_row_bytes(stored, dim)]*/) const noexcept;
};

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

// Rows that lie one after the other, checked and rounded to the stored type. Throws RowValueError before it writes the
// row that does not fit.
void store_rows(const Kernels& kernels, Stored stored, const float* rows /*[n, dim]*/, std::size_t n, std::size_t dim,
                std::byte* out /*[n, stored_row_bytes(stored, dim)]*/);

// And back to float32.
void load_rows(const Kernels& kernels, Stored stored, const std::byte* rows /*[n, stored_row_bytes(stored, dim)]*/,
               std::size_t n, std::size_t dim, float* out /*[n, dim]*/) noexcept;

// The widest set that this CPU runs, or the one that `wanted` names (empty: no wish). Throws InstructionSetError for
// an unknown name or a set that the CPU lacks.
const Kernels& choose_kernels(const char* wanted);

// Chosen at the first call from the environment variable PARAMSERVER_ISA. Throws like choose_kernels.
const Kernels& kernels();

}  // namespace paramserver
