// All rows of one side's stored features, immutable once built, in one block of memory without pointers in it, so that
// the block may live in anonymous huge pages, in a file, or in memory that several processes map read-only.
//
//   block:  Header | index [slots] | ColumnHeader [columns] | arrays, each starting at a multiple of 64 bytes
//   index:  open addressing, linear probing, at most half full. IndexSlot{key, row + 1}: 0 means empty, so every
//           64-bit pattern is a legal key.
//   column: rows + 1 cells; the last is the default that unknown keys get. Null cells hold the default as well.
//           dense:  values [(rows + 1) * width]
//           ragged: row_offsets int64 [rows + 2] into the values
//           bytes:  byte_offsets int64 [values + 1] into `values`, all byte strings end to end
//           presence: one bit a row, clear for null cells and for the default row
//
// Thread-safety: const methods from any thread. Ownership: a Cache owns its block; views die with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "feature_store/csrc/feature_source.h"

namespace feature_store {

// One feature's cells to build from; nothing is kept. Offsets start at 0 and are valid.
struct CellsView {
  DType dtype = DType::kF32;
  bool ragged = false;
  std::uint32_t width = 1;
  const void* values = nullptr;                // f32, i64, or bytes
  std::uint64_t value_bytes = 0;
  const std::int64_t* row_offsets = nullptr;   // [rows + 1], ragged only
  const std::int64_t* byte_offsets = nullptr;  // [values + 1], bytes only
  const std::uint8_t* present = nullptr;       // [rows], 0 or 1
  const void* default_values = nullptr;        // dense: width values; ragged: none
  std::uint64_t default_bytes = 0;
  const std::int64_t* default_byte_offsets = nullptr;  // [width + 1], dense bytes only
};

// Where one column lies in a built block.
struct StoredColumn {
  DType dtype;
  bool ragged;
  bool all_present;  // every row but the default one
  std::uint32_t width;
  const void* values;
  const std::int64_t* row_offsets;
  const std::int64_t* byte_offsets;
  const std::uint64_t* presence;

  bool present(std::uint32_t row) const noexcept { return (presence[row >> 6] >> (row & 63)) & 1; }
};

class Cache {
 public:
  // Throws DataError when a key stands twice, StorageError when memory cannot be had.
  static std::shared_ptr<const Cache> build(const std::int64_t* keys /*[rows]*/, std::size_t rows,
                                            const std::vector<CellsView>& columns);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  std::size_t rows() const noexcept;
  std::size_t bytes() const noexcept { return bytes_; }
  std::size_t columns() const noexcept;
  StoredColumn column(std::size_t i) const noexcept;

  // found[i] = the row of keys[i], or rows() (the default row) for an unknown key.
  void find(const std::int64_t* keys /*[n]*/, std::size_t n, std::uint32_t* found /*[n]*/) const noexcept;

 private:
  explicit Cache(std::size_t bytes);
  void fill_index(const std::int64_t* keys);

  char* block_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace feature_store
