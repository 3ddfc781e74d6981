// Makes a snapshot of rows that come in any order, in bounded memory: an external sort by mix(id).
//
// Rows are dealt out to partitions by the first bits of their hash. A partition is a list of full chunks, kept in
// memory while they fit `memory_bytes_max` together and in a nameless file in the snapshot's folder beyond, and one
// chunk being filled. At the end the partitions are read, sorted and written one after the other, the next one being
// read and sorted meanwhile. Memory beyond memory_bytes_max: two partitions, each about a quarter of it, because hashes
// are uniform (ids that somebody chose to collide may need more). Disk beyond the snapshot: the rows that did not fit.
//
//   a record in a chunk:  | id, int64 | time, uint32, only with header.times | row as stored |
//
// Thread-safety: add() from several threads at once; then write_partition() and finish() from one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paramserver/csrc/file.h"
#include "paramserver/csrc/snapshot_file_writer.h"
#include "paramserver/csrc/snapshot_format.h"

namespace paramserver {

class SnapshotBuilder {
 public:
  // `header.rows` is a guess of how many rows will come, which decides how many partitions there are; the file says
  // what came.
  SnapshotBuilder(std::string path, const SnapshotHeader& header, const std::byte* default_row /*[row_bytes]*/,
                  std::uint64_t memory_bytes_max);

  const SnapshotHeader& header() const noexcept { return header_; }
  std::uint64_t rows() const;
  std::uint64_t spilled_bytes() const;

  // Rows as stored, copied. Throws StoreFull, TableFileError: the builder is of no use afterwards.
  void add(const std::int64_t* ids /*[n]*/, const std::byte* rows /*[n, row_bytes]*/,
           const std::uint32_t* times /*[n], only with header.times*/, std::size_t n);

  // Writes the next partition; false when none is left. Throws DuplicateIdError, naming an id that came twice.
  bool write_partition();
  // The id written last: after a DuplicateIdError the one that came twice.
  std::int64_t last_id() const noexcept { return writer_ == nullptr ? 0 : writer_->last_id(); }
  std::uint64_t rows_written() const noexcept { return rows_written_; }
  // The file appears. Only after write_partition() was false.
  void finish();
  // Leaves nothing behind, as the destructor does; the builder is of no use afterwards.
  void abandon() noexcept {
    if (writer_ != nullptr) writer_->abandon();
  }

 private:
  struct Chunk {
    std::vector<std::byte> memory;  // empty: in the file
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };
  struct Partition {
    std::vector<Chunk> full;
    std::vector<std::byte> filling;
    std::uint64_t records = 0;
  };
  struct Record {
    std::uint64_t hash;
    const std::byte* bytes;
  };
  // A partition's records in order, and the memory in which they lie.
  struct Sorted {
    std::vector<std::vector<std::byte>> memory;
    std::vector<Record> records;
  };

  void put(Partition& partition, const std::byte* record);
  void close_chunk(Partition& partition);
  Sorted sorted(Partition& partition);
  void fetch_next();
  void write(const Sorted& sorted);

  const std::string path_;
  SnapshotHeader header_;
  const std::vector<std::byte> default_row_;
  const std::size_t record_bytes_;
  const std::uint64_t memory_bytes_max_;
  const int partition_bits_;
  const std::size_t chunk_bytes_;

  mutable std::mutex mutex_;
  std::vector<Partition> partitions_;
  std::uint64_t memory_bytes_ = 0;
  std::uint64_t spilled_bytes_ = 0;
  std::uint64_t rows_ = 0;
  File spill_;

  std::unique_ptr<SnapshotWriter> writer_;
  std::future<Sorted> next_;
  std::size_t next_partition_ = 0;
  std::uint64_t rows_written_ = 0;
};

}  // namespace paramserver
