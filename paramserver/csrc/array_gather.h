// The ceilings that benchmarks compare a table with: rows addressed directly by row number, no ids, no index, no
// status; and the same after a look at another line of memory, which is the least that a table with its ids apart from
// its rows must do.
// Used by benchmarks only. Thread-safety: gather from any thread once built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "paramserver/csrc/memory.h"

namespace paramserver {

class ArrayGather {
 public:
  // Row r holds r's low bits in every element. Throws MemoryExhausted.
  ArrayGather(std::uint64_t rows, std::uint32_t dim);

  std::uint32_t dim() const noexcept { return static_cast<std::uint32_t>(dim_); }
  bool huge_pages() const noexcept { return region_.huge(); }

  // Copies the rows, prefetching ahead. Every number must be below `rows`.
  void gather(const std::int64_t* row_numbers /*[n]*/, std::size_t n, float* out /*[n, dim]*/) const noexcept;

  // The same, each row being known only once its line of an array as large as an index of `rows` ids has been read.
  void gather_two_pages(const std::int64_t* row_numbers /*[n]*/, std::size_t n,
                        float* out /*[n, dim]*/) const noexcept;

 private:
  // Where the row lies, and where its line of the index would; a row is on its way into the cache from then on.
  const std::byte* fetched(std::int64_t row_number) const noexcept;
  const std::byte* line_of(std::int64_t row_number) const noexcept;

  std::size_t dim_;
  Region region_;
  std::uint64_t lines_;
  Region index_;  // zeros
};

}  // namespace paramserver
