// The loops over row elements, one set per instruction set, chosen once per process.
//
// All sets give the same bits: sums run in float32, element by element, in the order of the rows, with a separate
// multiplication and addition (the build forbids contraction into FMA, which rounds once less).
// "scalar" is baseline x86-64, "avx2" needs AVX2 and F16C, "avx512" needs AVX-512F beside them; the last compiles
// everywhere but is untested here: no machine of the authors runs it.
// Thread-safety: all functions are pure. None keeps a pointer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/row_source.h"

namespace paramserver {

// Element type of the rows in a table's memory.
enum class Stored : std::uint8_t { kF32 = 0, kF16 = 1 };

constexpr std::size_t stored_bytes(Stored stored) noexcept { return stored == Stored::kF32 ? 4 : 2; }
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
  CopyRows copy[2][3];   // [Stored][RowType]
  AddRows add[2];        // [Stored]
  DivideRow divide[3];   // [RowType]
};

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

// The widest set that this CPU runs, or the one that `wanted` names (empty: no wish). Throws InstructionSetError for
// an unknown name or a set that the CPU lacks.
const Kernels& choose_kernels(const char* wanted);

// Chosen at the first call from the environment variable PARAMSERVER_ISA. Throws like choose_kernels.
const Kernels& kernels();

}  // namespace paramserver
