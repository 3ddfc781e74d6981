#include "paramserver/csrc/snapshot_format.h"

#include <bit>
#include <cstring>

#include "paramserver/csrc/crc32c.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/table.h"

namespace paramserver {
namespace {

static_assert(std::endian::native == std::endian::little, "the files' numbers are written as they lie in memory");

constexpr char kMagic[8] = {'L', 'S', 'V', 'C', 'S', 'N', 'A', 'P'};
constexpr std::uint32_t kFormat = 1;
constexpr std::uint32_t kFlagTimes = 1;
constexpr std::size_t kCrcAt = kPageBytes - 4;

struct RawHeader {
  char magic[8];
  std::uint32_t format, stored, dim, row_bytes, flags, zero;
  std::uint64_t rows;
  std::int64_t base_sequence, package_version, time_s;
  std::uint64_t file_bytes;
  std::uint32_t checksums_crc, slot_bytes;
};
static_assert(sizeof(RawHeader) == 80);

RawHeader raw_of(const SnapshotHeader& header, std::uint32_t checksums_crc) noexcept {
  const SnapshotLayout layout(header);
  RawHeader raw{};
  std::memcpy(raw.magic, kMagic, sizeof kMagic);
  raw.format = kFormat;
  raw.stored = static_cast<std::uint32_t>(header.stored);
  raw.dim = header.dim;
  raw.row_bytes = header.row_bytes();
  raw.flags = header.times ? kFlagTimes : 0;
  raw.rows = header.rows;
  raw.base_sequence = header.base_sequence;
  raw.package_version = header.package_version;
  raw.time_s = header.time_s;
  raw.file_bytes = layout.file_bytes();
  raw.checksums_crc = checksums_crc;
  raw.slot_bytes = layout.geometry().slot_bytes;
  return raw;
}

}  // namespace

const char* section_name(SnapshotSection section) noexcept {
  constexpr const char* kNames[kSnapshotSections] = {"default row", "ids", "times", "slots"};
  return kNames[static_cast<int>(section)];
}

SnapshotLayout::SnapshotLayout(const SnapshotHeader& header) noexcept
    : geometry_(SlotGeometry::of(header.row_bytes())) {
  const std::uint64_t bytes[kSnapshotSections] = {whole_pages(header.row_bytes()), whole_pages(8 * header.rows),
                                                  header.times ? whole_pages(4 * header.rows) : 0,
                                                  geometry_.bytes(header.rows)};
  std::uint64_t offset = kPageBytes;
  for (std::size_t i = 0; i < kSnapshotSections; ++i) {
    sections_[i] = {offset, bytes[i], blocks_};
    offset += bytes[i];
    blocks_ += sections_[i].blocks();
  }
  checksums_offset_ = offset;
}

SnapshotBlock SnapshotLayout::block(std::uint64_t block) const noexcept {
  std::size_t i = kSnapshotSections - 1;
  while (sections_[i].first_block > block || sections_[i].bytes == 0) --i;
  const std::uint64_t start = (block - sections_[i].first_block) * kBlockBytes;
  const std::uint64_t left = sections_[i].bytes - start;
  return {static_cast<SnapshotSection>(i), sections_[i].offset + start, left < kBlockBytes ? left : kBlockBytes};
}

HeaderPage encode_header(const SnapshotHeader& header, std::uint32_t checksums_crc) noexcept {
  HeaderPage page{};
  const RawHeader raw = raw_of(header, checksums_crc);
  std::memcpy(page.data(), &raw, sizeof raw);
  const std::uint32_t crc = crc32c(page.data(), kCrcAt);
  std::memcpy(page.data() + kCrcAt, &crc, sizeof crc);
  return page;
}

DecodedHeader decode_header(const HeaderPage& page, std::uint64_t file_bytes, const std::string& path) {
  RawHeader raw;
  std::uint32_t crc;
  std::memcpy(&raw, page.data(), sizeof raw);
  std::memcpy(&crc, page.data() + kCrcAt, sizeof crc);
  if (std::memcmp(raw.magic, kMagic, sizeof kMagic) != 0) {
    throw TableSchemaError(path + ": does not begin like a snapshot: convert Parquet files with convert_parquet");
  }
  if (crc != crc32c(page.data(), kCrcAt)) {
    throw StoreDamaged(path + ": the header is not what was written (its checksum differs): copy the snapshot again");
  }
  if (raw.format != kFormat) {
    throw TableSchemaError(path + ": format is " + std::to_string(raw.format) + ", expected " +
                           std::to_string(kFormat) + ": written by another version of this package");
  }
  const SnapshotHeader header{.stored = static_cast<Stored>(raw.stored),
                              .dim = raw.dim,
                              .times = (raw.flags & kFlagTimes) != 0,
                              .rows = raw.rows,
                              .base_sequence = raw.base_sequence,
                              .package_version = raw.package_version,
                              .time_s = raw.time_s};
  const bool sane = raw.stored < static_cast<std::uint32_t>(kStoredTypes) && raw.dim >= 1 &&
                    raw.dim <= kDimMax && raw.rows <= kRowsMax;
  // What follows from the header must be what the header says, byte for byte.
  if (!sane || encode_header(header, raw.checksums_crc) != page) {
    throw StoreDamaged(path + ": the header contradicts itself: it was not written by this package");
  }
  if (file_bytes != raw.file_bytes) {
    throw StoreDamaged(path + ": has " + std::to_string(file_bytes) + " bytes, expected " +
                       std::to_string(raw.file_bytes) + ": it was cut or grew, copy the snapshot again");
  }
  return {header, raw.checksums_crc};
}

}  // namespace paramserver
