// The ceiling that benchmarks compare a table with: rows addressed directly by row number, no ids, no index, no status.
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

 private:
  std::size_t dim_;
  Region region_;
};

}  // namespace paramserver
