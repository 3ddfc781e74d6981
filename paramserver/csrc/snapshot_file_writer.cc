#include "paramserver/csrc/snapshot_file_writer.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "paramserver/csrc/crc32c.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/hash.h"

namespace paramserver {
namespace {

std::string temporary_name(const std::string& path) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) throw_file_error(errno, path, "draw a temporary name");
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  char tail[32];
  std::snprintf(tail, sizeof tail, ".%016llx.tmp", static_cast<unsigned long long>(random));
  return folder_of(path) + "/." + name + tail;
}

}  // namespace

SnapshotWriter::Stream::Stream(const File& file, const SnapshotLayout::Section& section)
    : file_(file), offset_(section.offset), block_(std::min(section.bytes, kBlockBytes)) {
  checksums_.reserve(section.blocks());
}

void SnapshotWriter::Stream::put(const void* bytes, std::size_t n) {
  const auto* from = static_cast<const std::byte*>(bytes);
  while (n > 0) {
    const std::size_t piece = std::min(n, block_.size() - used_);
    std::memcpy(block_.data() + used_, from, piece);
    used_ += piece;
    from += piece;
    n -= piece;
    if (used_ == kBlockBytes) flush();
  }
}

void SnapshotWriter::Stream::fill_page() {
  const std::size_t end = whole_pages(used_);
  std::memset(block_.data() + used_, 0, end - used_);
  used_ = end;
  if (used_ == kBlockBytes) flush();
}

void SnapshotWriter::Stream::finish() {
  if (used_ == 0) return;
  fill_page();
  if (used_ > 0) flush();
}

void SnapshotWriter::Stream::flush() {
  checksums_.push_back(crc32c(block_.data(), used_));
  file_.write_at(offset_, block_.data(), used_);
  file_.begin_write_back(offset_, used_);
  offset_ += used_;
  used_ = 0;
}

SnapshotWriter::SnapshotWriter(std::string path, const SnapshotHeader& header, const std::byte* default_row)
    : path_(std::move(path)),
      header_(header),
      layout_(header),
      file_(File::create(temporary_name(path_))),
      default_row_(file_, layout_.section(SnapshotSection::kDefaultRow)),
      ids_(file_, layout_.section(SnapshotSection::kIds)),
      times_(file_, layout_.section(SnapshotSection::kTimes)),
      slots_(file_, layout_.section(SnapshotSection::kSlots)) {
  default_row_.put(default_row, header_.row_bytes());
  default_row_.finish();
}

SnapshotWriter::~SnapshotWriter() { abandon(); }

void SnapshotWriter::abandon() noexcept {
  if (!done_) ::unlink(file_.path().c_str());
  done_ = true;
}

void SnapshotWriter::check_next(std::int64_t id) const {
  if (rows_ == header_.rows) {
    throw OptionError(path_ + ": more rows came than the " + std::to_string(header_.rows) + " that were said");
  }
  if (rows_ == 0 || mix(last_id_) < mix(id)) return;
  if (id == last_id_) {
    throw DuplicateIdError(path_ + ": id " + std::to_string(id) + " came twice: keep one row for each id");
  }
  throw OptionError(path_ + ": id " + std::to_string(id) + " came after id " + std::to_string(last_id_) +
                    ", expected ids in the order of mix(id)");
}

void SnapshotWriter::append(const std::int64_t* ids, const std::byte* const* rows, const std::uint32_t* times,
                            std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) put(ids[i], rows[i], header_.times ? &times[i] : nullptr);
}

void SnapshotWriter::append_packed(const std::int64_t* ids, const std::byte* rows, const std::uint32_t* times,
                                   std::size_t n) {
  const std::size_t row_bytes = header_.row_bytes();
  for (std::size_t i = 0; i < n; ++i) put(ids[i], rows + i * row_bytes, header_.times ? &times[i] : nullptr);
}

void SnapshotWriter::put(std::int64_t id, const std::byte* row, const std::uint32_t* time) {
  check_next(id);
  ids_.put(&id, sizeof id);
  if (time != nullptr) times_.put(time, sizeof *time);
  slots_.put(row, header_.row_bytes());
  ++rows_;
  last_id_ = id;
  const std::uint32_t per_page = layout_.geometry().slots_per_page;
  if (per_page == 0 || rows_ % per_page == 0) slots_.fill_page();
}

void SnapshotWriter::finish() {
  if (rows_ != header_.rows) {
    throw OptionError(path_ + ": " + std::to_string(rows_) + " rows came, expected the " +
                      std::to_string(header_.rows) + " that were said");
  }
  std::vector<std::uint32_t> checksums;
  checksums.reserve(layout_.checksums_bytes() / 4);
  for (Stream* stream : {&default_row_, &ids_, &times_, &slots_}) {
    stream->finish();
    checksums.insert(checksums.end(), stream->checksums().begin(), stream->checksums().end());
  }
  checksums.resize(layout_.checksums_bytes() / 4);
  file_.write_at(layout_.checksums_offset(), checksums.data(), layout_.checksums_bytes());
  const HeaderPage page = encode_header(header_, crc32c(checksums.data(), layout_.checksums_bytes()));
  file_.write_at(0, page.data(), page.size());
  file_.sync();
  if (::rename(file_.path().c_str(), path_.c_str()) != 0) throw_file_error(errno, path_, "rename to it");
  done_ = true;
  sync_folder(folder_of(path_));
}

}  // namespace paramserver
