// The spill file: scratch slots for rows that deltas wrote and that do not fit in RAM.
//
//   slot:  | id, int64 | row as stored |    slot_bytes = 8 + row_bytes, laid out by SlotGeometry
//
// The file has no name (O_TMPFILE, or unlinked at once), so that nothing is left behind whatever happens to the
// process; whoever rebuilds the table rebuilds it. A slot carries its id, so that a slot read by mistake is noticed.
//
// Rows are written a block at a time, in runs of neighbouring blocks: into blocks that are empty, else at the end of
// the file; when more than a third of the file is holes, into blocks that are half empty, which are read and written
// back whole. A reader of the other slots of such a block gets the bytes that were there before.
//
// Thread-safety: one writer at a time; descriptor() and geometry() from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "paramserver/csrc/memory.h"
#include "paramserver/csrc/slot_geometry.h"

namespace paramserver {

using SlotNumber = std::uint64_t;

// Closes a file descriptor. Moves, never copies.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) noexcept : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

// Opens a file for reading its blocks, past the page cache where `direct` and the file system allow it; `is_direct`
// says which it became. Throws SlotFileError.
FileDescriptor open_slots(const std::string& path, bool direct, bool& is_direct);

struct SlotFileStats {
  std::uint64_t slots_live = 0;
  std::uint64_t bytes = 0;          // of the file
  std::uint64_t bytes_written = 0;  // since the start
  std::uint64_t writes_refused = 0; // for want of space
  bool direct = false;              // past the page cache
};

class SlotFile {
 public:
  struct Options {
    std::string directory;
    std::size_t row_bytes = 0;
    std::uint64_t bytes_max = 0;  // the file never grows past it; 0: as the file system allows
    bool direct = true;
  };

  // Throws SlotFileError when the directory takes no file.
  explicit SlotFile(const Options& options);

  // Writes rows to slots of its choice. All or nothing: throws SlotFileFull (no space left, on the device or under
  // bytes_max) or SlotFileError, and then no slot is taken.
  void write(const std::int64_t* ids /*[n]*/, const std::byte* const* rows /*[n]*/, std::size_t n,
             SlotNumber* slots /*[n]*/);
  // Gives back a slot that nothing reaches any more.
  void release(SlotNumber slot);

  int descriptor() const noexcept { return file_.get(); }
  const SlotGeometry& geometry() const noexcept { return geometry_; }
  SlotFileStats stats() const noexcept;

  // What a slot says its id is, and where its row begins.
  static std::int64_t id_of(const std::byte* slot) noexcept;
  static const std::byte* row_of(const std::byte* slot) noexcept { return slot + sizeof(std::int64_t); }

 private:
  enum class Listed : std::uint8_t { kNowhere, kEmpty, kSparse };
  struct Block {
    std::uint16_t live = 0;
    Listed listed = Listed::kNowhere;
  };

  std::uint64_t take_block(bool& holds_rows);
  void list(std::uint64_t block);
  void read_block(std::uint64_t block, std::byte* to);
  void write_blocks(const std::byte* from, std::uint64_t block, std::size_t blocks);
  void undo(const SlotNumber* slots, std::size_t n);

  const SlotGeometry geometry_;
  const std::size_t row_bytes_;
  const std::uint64_t blocks_max_;
  bool direct_ = false;
  FileDescriptor file_;
  Region staging_;             // blocks on their way to the file
  std::vector<Block> blocks_;  // of the file
  std::vector<bool> used_;     // by slot
  std::vector<std::uint64_t> empty_;
  std::vector<std::uint64_t> sparse_;
  std::uint64_t live_ = 0;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t writes_refused_ = 0;
};

}  // namespace paramserver
