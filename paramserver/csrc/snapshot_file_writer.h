// Writes a snapshot in one pass, a block at a time, from rows that come in the order of mix(id).
//
// The file grows under a temporary name in the same folder and takes its own when finish() has synced it; whoever is
// destroyed before leaves nothing. Memory: one block for each section, and 4 bytes for each block written.
// Thread-safety: one thread at a time. Ownership: borrows nothing beyond a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "paramserver/csrc/file.h"
#include "paramserver/csrc/snapshot_format.h"

namespace paramserver {

class SnapshotWriter {
 public:
  // `header.rows` is how many rows will come. Throws StoreFull, TableFileError.
  SnapshotWriter(std::string path, const SnapshotHeader& header, const std::byte* default_row /*[row_bytes]*/);
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;
  ~SnapshotWriter();

  // The next rows, as stored. Throws DuplicateIdError, OptionError (out of order, more rows than said), StoreFull,
  // TableFileError: the writer is of no use afterwards.
  void append(const std::int64_t* ids /*[n]*/, const std::byte* const* rows /*[n]*/,
              const std::uint32_t* times /*[n], only with header.times*/, std::size_t n);
  // The same for rows that lie one after the other: [n, row_bytes].
  void append_packed(const std::int64_t* ids, const std::byte* rows, const std::uint32_t* times, std::size_t n);
  // The file appears, or replaces the one of its name. Throws OptionError when rows are missing, StoreFull,
  // TableFileError.
  void finish();

  // Leaves nothing behind, as the destructor does; the writer is of no use afterwards.
  void abandon() noexcept;

  const SnapshotHeader& header() const noexcept { return header_; }
  // The id appended last, 0 before.
  std::int64_t last_id() const noexcept { return last_id_; }

 private:
  // One section, written block by block.
  class Stream {
   public:
    Stream(const File& file, const SnapshotLayout::Section& section);
    void put(const void* bytes, std::size_t n);
    void fill_page();  // zeros to the next page
    void finish();     // what is left
    const std::vector<std::uint32_t>& checksums() const noexcept { return checksums_; }

   private:
    void flush();

    const File& file_;
    std::uint64_t offset_;
    std::size_t used_ = 0;
    std::vector<std::byte> block_;
    std::vector<std::uint32_t> checksums_;
  };

  void check_next(std::int64_t id) const;
  void put(std::int64_t id, const std::byte* row, const std::uint32_t* time);

  const std::string path_;
  const SnapshotHeader header_;
  const SnapshotLayout layout_;
  File file_;
  bool done_ = false;
  std::uint64_t rows_ = 0;
  std::int64_t last_id_ = 0;
  Stream default_row_;
  Stream ids_;
  Stream times_;
  Stream slots_;
};

}  // namespace paramserver
