// NAME.snap: the rows of one table at one moment, as bytes. All numbers little-endian.
//
//   page 0    header            see SnapshotHeader; the rest zero; the page's last 4 bytes: CRC-32C of those before
//   page 1 .. default row       row_bytes, as stored
//             ids               int64[rows], ascending by mix(id) as unsigned: an index is built in one sequential pass
//             times             uint32[rows], only with flag 1: seconds since 1970 of the delta that wrote the row
//             slots             rows in the order of the ids, laid out by slot_geometry.h
//             checksums         uint32 for each block: the sections' blocks in the order above
//
// Every section begins on a page (4096 bytes) and is filled up with zeros to whole pages; an empty one takes none. A
// block is 1 MiB of a section, the last one of a section what is left; its checksum is CRC-32C. Offsets follow from the
// header, so that one table has one sequence of bytes. A row is what row_format.h says, its slot has the same size (or
// whole pages beyond one).
//
//   header, byte 0    char[8] "LSVCSNAP"        56  int64  time_s: of the newest delta within, seconds since 1970
//                8    uint32  format, 1         64  uint64 bytes of the file
//               12    uint32  stored type       72  uint32 CRC-32C of the checksums section
//               16    uint32  dim               76  uint32 slot_bytes
//               20    uint32  row_bytes
//               24    uint32  flags
//               28    uint32  0
//               32    uint64  rows
//               40    int64   base_sequence: of the newest delta within
//               48    int64   package_version
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "paramserver/csrc/row_format.h"
#include "paramserver/csrc/slot_geometry.h"

namespace paramserver {

inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

struct SnapshotHeader {
  Stored stored = Stored::kF32;
  std::uint32_t dim = 0;
  bool times = false;
  std::uint64_t rows = 0;
  std::int64_t base_sequence = 0;
  std::int64_t package_version = 0;
  std::int64_t time_s = 0;

  std::uint32_t row_bytes() const noexcept { return static_cast<std::uint32_t>(stored_row_bytes(stored, dim)); }
};

enum class SnapshotSection : std::uint8_t { kDefaultRow = 0, kIds = 1, kTimes = 2, kSlots = 3 };
inline constexpr std::size_t kSnapshotSections = 4;
const char* section_name(SnapshotSection section) noexcept;

// One block: a stretch of the file, whole pages.
struct SnapshotBlock {
  SnapshotSection section;
  std::uint64_t offset;
  std::uint64_t bytes;
};

// Where everything lies; follows from a header. A value.
class SnapshotLayout {
 public:
  struct Section {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  // whole pages
    std::uint64_t first_block = 0;
    std::uint64_t blocks() const noexcept { return (bytes + kBlockBytes - 1) / kBlockBytes; }
  };

  SnapshotLayout() = default;
  explicit SnapshotLayout(const SnapshotHeader& header) noexcept;

  const Section& section(SnapshotSection section) const noexcept { return sections_[static_cast<int>(section)]; }
  SnapshotBlock block(std::uint64_t block) const noexcept;
  const SlotGeometry& geometry() const noexcept { return geometry_; }
  std::uint64_t blocks() const noexcept { return blocks_; }
  std::uint64_t checksums_offset() const noexcept { return checksums_offset_; }
  std::uint64_t checksums_bytes() const noexcept { return whole_pages(4 * blocks_); }
  std::uint64_t file_bytes() const noexcept { return checksums_offset_ + checksums_bytes(); }

 private:
  SlotGeometry geometry_;
  std::array<Section, kSnapshotSections> sections_;
  std::uint64_t blocks_ = 0;
  std::uint64_t checksums_offset_ = 0;
};

using HeaderPage = std::array<std::byte, kPageBytes>;

HeaderPage encode_header(const SnapshotHeader& header, std::uint32_t checksums_crc) noexcept;

// The header in the first page of the file at `path` (for messages). Throws TableSchemaError for a file that is no
// snapshot or of another format, StoreDamaged for one whose header is not what was written.
struct DecodedHeader {
  SnapshotHeader header;
  std::uint32_t checksums_crc;
};
DecodedHeader decode_header(const HeaderPage& page, std::uint64_t file_bytes, const std::string& path);

}  // namespace paramserver
