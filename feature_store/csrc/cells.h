// Two places that a feature's cells come from during a gather, with one face: the cache's column (through row numbers)
// and a request's own column (row after row). Templates over it keep the inner loops free of branches on the source.
//
// Thread-safety: views over immutable memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "feature_store/csrc/cache.h"
#include "feature_store/csrc/feature_source.h"

namespace feature_store {

struct Range {
  std::uint64_t begin, end;
  std::uint64_t size() const noexcept { return end - begin; }
};

struct StoredCells {
  const StoredColumn& column;
  const std::uint32_t* rows;  // of the tile

  const char* values() const noexcept { return static_cast<const char*>(column.values); }
  Range dense(std::size_t i) const noexcept {
    const std::uint64_t begin = std::uint64_t{rows[i]} * column.width;
    return {begin, begin + column.width};
  }
  Range ragged(std::size_t i) const noexcept { return range(column.row_offsets, rows[i]); }
  Range bytes(std::uint64_t value) const noexcept { return range(column.byte_offsets, value); }

  static Range range(const std::int64_t* offsets, std::uint64_t at) noexcept {
    return {static_cast<std::uint64_t>(offsets[at]), static_cast<std::uint64_t>(offsets[at + 1])};
  }
};

struct RequestCells {
  const ColumnView& column;
  std::size_t start;  // the tile's first row
  std::uint32_t width;

  const char* values() const noexcept { return static_cast<const char*>(column.values); }
  Range dense(std::size_t i) const noexcept { return {(start + i) * width, (start + i + 1) * width}; }
  Range ragged(std::size_t i) const noexcept { return range(column.row_offsets, start + i); }
  Range bytes(std::uint64_t value) const noexcept { return range(column.byte_offsets, value); }

  // Offsets of a column that came over the wire may be unaligned.
  static Range range(const std::int32_t* offsets, std::uint64_t at) noexcept {
    std::int32_t pair[2];
    std::memcpy(pair, reinterpret_cast<const char*>(offsets) + at * sizeof(std::int32_t), sizeof pair);
    return {static_cast<std::uint64_t>(pair[0]), static_cast<std::uint64_t>(pair[1])};
  }
};

}  // namespace feature_store
