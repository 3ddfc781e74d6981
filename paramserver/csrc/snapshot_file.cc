#include "paramserver/csrc/snapshot_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "paramserver/csrc/crc32c.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/hash.h"

namespace paramserver {
namespace {

std::string damaged_at(const std::string& path, const SnapshotBlock& block) {
  return path + ": section " + section_name(block.section) + ", bytes " + std::to_string(block.offset) + " to " +
         std::to_string(block.offset + block.bytes);
}

}  // namespace

std::shared_ptr<const SnapshotFile> SnapshotFile::open(const std::string& path) {
  return std::make_shared<const SnapshotFile>(path);
}

SnapshotFile::SnapshotFile(const std::string& path) : file_(File::open_to_read(path)) {
  const std::uint64_t bytes = file_.bytes();
  if (bytes < kPageBytes) {
    throw TableSchemaError(path + ": has " + std::to_string(bytes) + " bytes, a snapshot has at least " +
                           std::to_string(kPageBytes));
  }
  HeaderPage page;
  file_.read_at(0, page.data(), page.size());
  const DecodedHeader decoded = decode_header(page, bytes, path);
  header_ = decoded.header;
  layout_ = SnapshotLayout(header_);
  std::vector<std::uint32_t> section(layout_.checksums_bytes() / 4);
  file_.read_at(layout_.checksums_offset(), section.data(), layout_.checksums_bytes());
  if (crc32c(section.data(), layout_.checksums_bytes()) != decoded.checksums_crc) {
    throw StoreDamaged(path + ": section checksums, from byte " + std::to_string(layout_.checksums_offset()) +
                       ": is not what was written, copy the snapshot again");
  }
  section.resize(layout_.blocks());
  checksums_ = std::move(section);
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_.fd(), 0);
  if (map == MAP_FAILED) throw_file_error(errno, path, "map it");
  map_ = static_cast<std::byte*>(map);
}

SnapshotFile::~SnapshotFile() {
  if (map_ != nullptr) ::munmap(map_, layout_.file_bytes());
}

void SnapshotFile::read_rows(std::uint64_t first, std::uint64_t end, std::byte* out) const {
  if (first > end || end > rows()) {
    throw OptionError("rows " + std::to_string(first) + " to " + std::to_string(end) + " of " +
                      std::to_string(rows()) + ": expected first <= end <= rows");
  }
  const SlotGeometry& geometry = layout_.geometry();
  const std::size_t row_bytes = header_.row_bytes();
  std::vector<std::byte> buffer;
  const std::uint64_t step = std::max<std::uint64_t>(1, kBlockBytes / geometry.slot_bytes);
  for (; first < end; first += std::min(step, end - first)) {
    const std::uint64_t n = std::min(step, end - first);
    const std::uint64_t from = geometry.offset(first);
    buffer.resize(geometry.offset(first + n - 1) + row_bytes - from);
    file_.read_at(slots_offset() + from, buffer.data(), buffer.size());
    for (std::uint64_t i = first; i < first + n; ++i, out += row_bytes) {
      std::memcpy(out, buffer.data() + geometry.offset(i) - from, row_bytes);
    }
  }
}

void SnapshotFile::check_block(std::uint64_t block, const std::byte* bytes) const {
  const SnapshotBlock place = layout_.block(block);
  if (crc32c(bytes, place.bytes) == checksums_[block]) return;
  throw StoreDamaged(damaged_at(path(), place) + ": is not what was written, copy the snapshot again");
}

void SnapshotFile::verify_blocks(std::uint64_t first, std::uint64_t end) const {
  std::vector<std::byte> bytes(kBlockBytes);
  for (std::uint64_t block = first; block < std::min(end, layout_.blocks()); ++block) {
    const SnapshotBlock place = layout_.block(block);
    file_.read_at(place.offset, bytes.data(), place.bytes);
    check_block(block, bytes.data());
  }
}

void SnapshotFile::check_order(std::uint64_t first, std::uint64_t end) const {
  const std::int64_t* all = ids();
  for (std::uint64_t i = std::max<std::uint64_t>(first, 1); i < std::min(end, rows()); ++i) {
    if (mix(all[i - 1]) < mix(all[i])) [[likely]] continue;
    throw StoreDamaged(path() + ": section ids, row " + std::to_string(i) + ": id " + std::to_string(all[i]) +
                       (all[i] == all[i - 1] ? " is there twice" : " is not in the order of mix(id)") +
                       ": it was not written by this package");
  }
}

}  // namespace paramserver
