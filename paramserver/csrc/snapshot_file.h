// A snapshot (snapshot_format.h), opened to read: header and ids are mapped, slots are read.
//
// open() checks the header, the file's size and the list of checksums; verify_blocks() checks the content block by
// block, and check_order() what the ids must be. Until then the content is taken as it lies there.
// Thread-safety: everything from any thread, except the making and the end. Ownership: make it with open(); whoever
// holds it may use its pointers. The file must not be cut meanwhile: the intake's own copy is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "paramserver/csrc/file.h"
#include "paramserver/csrc/snapshot_format.h"

namespace paramserver {

class SnapshotFile {
 public:
  // Throws TableFileError, TableSchemaError, StoreDamaged, MemoryExhausted.
  static std::shared_ptr<const SnapshotFile> open(const std::string& path);
  explicit SnapshotFile(const std::string& path);
  SnapshotFile(const SnapshotFile&) = delete;
  SnapshotFile& operator=(const SnapshotFile&) = delete;
  ~SnapshotFile();

  const std::string& path() const noexcept { return file_.path(); }
  const SnapshotHeader& header() const noexcept { return header_; }
  const SnapshotLayout& layout() const noexcept { return layout_; }
  std::uint64_t rows() const noexcept { return header_.rows; }
  const std::byte* default_row() const noexcept { return map_ + offset(SnapshotSection::kDefaultRow); }  // [row_bytes]
  const std::int64_t* ids() const noexcept {  // [rows], ascending by mix
    return reinterpret_cast<const std::int64_t*>(map_ + offset(SnapshotSection::kIds));
  }
  const std::uint32_t* times() const noexcept {  // [rows], or null
    return header_.times ? reinterpret_cast<const std::uint32_t*>(map_ + offset(SnapshotSection::kTimes)) : nullptr;
  }
  // Where slot 0 begins in the file, a multiple of 4096.
  std::uint64_t slots_offset() const noexcept { return offset(SnapshotSection::kSlots); }
  // The row of a slot through the mapping: a page fault when it is not in the page cache.
  const std::byte* mapped_row(std::uint64_t slot) const noexcept {
    return map_ + slots_offset() + layout_.geometry().offset(slot);
  }
  const File& file() const noexcept { return file_; }

  // Rows [first, end) as stored, read from the file. Throws OptionError, TableFileError, StoreDamaged.
  void read_rows(std::uint64_t first, std::uint64_t end, std::byte* out /*[end - first, row_bytes]*/) const;

  // Reads blocks [first, end) and compares their checksums. Throws StoreDamaged for the first that differs.
  void verify_blocks(std::uint64_t first, std::uint64_t end) const;
  // Compares the checksum of a block that was read. Throws StoreDamaged.
  void check_block(std::uint64_t block, const std::byte* bytes) const;
  // Throws StoreDamaged unless ids [first, end) ascend by mix, the one before `first` included.
  void check_order(std::uint64_t first, std::uint64_t end) const;

 private:
  std::uint64_t offset(SnapshotSection section) const noexcept { return layout_.section(section).offset; }

  File file_;
  SnapshotHeader header_;
  SnapshotLayout layout_;
  std::vector<std::uint32_t> checksums_;  // [blocks]
  std::byte* map_ = nullptr;
};

}  // namespace paramserver
