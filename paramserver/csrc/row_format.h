// How a row lies in a table's memory, in a snapshot and on the wire, and which rows a format can hold.
//
//   f32   dim x float32
//   f16   dim x binary16, nearest even                      |magnitude| < 65520
//   bf16  dim x bfloat16, nearest even                      |magnitude| < 3.3961775e38
//   int8  | dim x uint8 code | zeros to a multiple of 4 | float32 scale | float32 bias |
//
// An element of an int8 row is code * scale + bias, in float32, rounded after the product and after the sum. The bias
// is the row's smallest element, exactly (minus zero becomes zero), and the scale is what makes code 255 its largest,
// to the rounding of float32: off by at most two units in the last place of the largest of |min|, |max| and max - min.
// A row of equal numbers has scale 0 and comes back exactly. Every other element is off by half a scale at most, and
// that rounding. So a row must not span more than float32 holds: 3.4e38.
// All bytes are little-endian; equal rows give equal bytes, padding included. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace paramserver {

// Element type of the rows in a table's memory. The numbers are part of snapshots and of the wire: never renumber. The
// first three are those of RowType.
enum class Stored : std::uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2, kInt8 = 3 };
inline constexpr int kStoredTypes = 4;

// Where the scale of an int8 row begins; its bias is the float32 after it.
constexpr std::size_t int8_scale_at(std::size_t dim) noexcept { return (dim + 3) / 4 * 4; }

// The bytes of one row. 64-bit throughout: rows * bytes may pass 2^32.
constexpr std::size_t stored_row_bytes(Stored stored, std::size_t dim) noexcept {
  return stored == Stored::kF32 ? 4 * dim : stored == Stored::kInt8 ? int8_scale_at(dim) + 8 : 2 * dim;
}

// "f32", "f16", "bf16" or "int8".
const char* stored_name(Stored stored) noexcept;

// True when every element is a finite number that the format holds.
bool row_fits(Stored stored, const float* row /*[dim]*/, std::size_t dim) noexcept;

// Why row_fits is false, as the beginning of a message: "element 3 is nan, expected finite numbers". Empty when it is
// true.
std::string row_fault(Stored stored, const float* row /*[dim]*/, std::size_t dim);

// Writes one int8 row, scale, bias and padding included. The row must fit.
void quantize_row(const float* row /*[dim]*/, std::size_t dim,
                  std::byte* out /*[stored_row_bytes(kInt8, dim)]*/) noexcept;

}  // namespace paramserver
