// What files of stored rows (row_format.h) need to know of them, many at a time.
//
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/kernels.h"

namespace paramserver {

// The number of the first stored row that no table would have stored: NaN or infinity in it; n when there is none.
std::size_t first_unfit(Stored stored, std::uint32_t dim, const std::byte* rows /*[n, row_bytes]*/,
                        std::size_t n) noexcept;

// How far rows are from what was stored of them.
struct RowError {
  double max = 0;             // largest distance of an element
  double sum = 0;             // of the distances
  double squares = 0;         // of the distances, summed
  double signal_squares = 0;  // of the elements, summed
};
RowError row_error(Stored stored, std::uint32_t dim, const float* rows /*[n, dim]*/,
                   const std::byte* encoded /*[n, row_bytes]*/, std::size_t n);

// A fingerprint of rows that does not depend on their order: the sum, modulo 2^64, of a hash of each id with its row.
std::uint64_t rows_fingerprint(const std::int64_t* ids /*[n]*/, const std::byte* rows /*[n, row_bytes]*/,
                               std::size_t row_bytes, std::size_t n) noexcept;

// Sorts ids ascending by mix(id), the order of snapshots.
void sort_by_mix(std::int64_t* ids /*[n]*/, std::size_t n);

}  // namespace paramserver
