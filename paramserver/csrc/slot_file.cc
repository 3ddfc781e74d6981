#include "paramserver/csrc/slot_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

// Blocks that go to the file in one write.
constexpr std::size_t kStagedBlocks = 64;
// The file may be a third holes, and this many blocks, before holes are filled rather than the file grown.
constexpr std::uint64_t kHolesFreeOfCharge = 64;

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  throw SlotFileError(what + " " + path + ": " + std::strerror(errno));
}

std::uint64_t blocks_under(std::uint64_t bytes_max, const SlotGeometry& geometry) {
  constexpr std::uint64_t kUnbounded = std::uint64_t{1} << 50;
  return (bytes_max == 0 ? kUnbounded : bytes_max) / geometry.block_bytes();
}

// An unnamed file where the file system has them, else one whose name is gone before anyone can ask for it.
FileDescriptor open_unnamed(const std::string& directory) {
  const int unnamed = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0) return FileDescriptor(unnamed);
  if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) fail("cannot make a spill file in", directory);
  std::string path = directory + "/spill.XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named < 0) fail("cannot make a spill file in", directory);
  unlink(path.c_str());
  return FileDescriptor(named);
}

bool set_direct(int fd) noexcept {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

FileDescriptor open_slots(const std::string& path, bool direct, bool& is_direct) {
  int fd = direct ? open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT) : -1;
  is_direct = fd >= 0;
  if (fd < 0) fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail("cannot open", path);
  // Without this a buffered read of one page would bring in its neighbours too.
  if (!is_direct) posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  return FileDescriptor(fd);
}

SlotFile::SlotFile(const Options& options)
    : geometry_(SlotGeometry::of(static_cast<std::uint32_t>(sizeof(std::int64_t) + options.row_bytes))),
      row_bytes_(options.row_bytes),
      blocks_max_(blocks_under(options.bytes_max, geometry_)),
      file_(open_unnamed(options.directory)),
      staging_(kStagedBlocks * geometry_.block_bytes(), false) {
  direct_ = options.direct && set_direct(file_.get());
  if (!direct_) posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM);
}

std::int64_t SlotFile::id_of(const std::byte* slot) noexcept {
  std::int64_t id;
  std::memcpy(&id, slot, sizeof(id));
  return id;
}

// An empty block, or a half empty one, or one past the end of the file.
std::uint64_t SlotFile::take_block(bool& holds_rows) {
  const auto take = [&](std::vector<std::uint64_t>& list, Listed listed) -> std::int64_t {
    while (!list.empty()) {
      const std::uint64_t block = list.back();
      list.pop_back();
      // A block may have filled or emptied since it was listed; only its newest listing counts.
      if (blocks_[block].listed != listed) continue;
      blocks_[block].listed = Listed::kNowhere;
      return static_cast<std::int64_t>(block);
    }
    return -1;
  };
  holds_rows = false;
  if (const std::int64_t block = take(empty_, Listed::kEmpty); block >= 0) return static_cast<std::uint64_t>(block);
  const std::uint64_t slots = blocks_.size() * geometry_.slots_per_block();
  const bool full = blocks_.size() >= blocks_max_;
  if (full || (slots - live_) * 3 > slots + 3 * kHolesFreeOfCharge * geometry_.slots_per_block()) {
    if (const std::int64_t block = take(sparse_, Listed::kSparse); block >= 0) {
      holds_rows = true;
      return static_cast<std::uint64_t>(block);
    }
  }
  if (full) {
    throw SlotFileFull("the spill file holds its most, " + std::to_string(blocks_.size() * geometry_.block_bytes()) +
                       " bytes: raise the tier's spill_bytes_max");
  }
  blocks_.emplace_back();
  used_.resize(blocks_.size() * geometry_.slots_per_block());
  return blocks_.size() - 1;
}

void SlotFile::list(std::uint64_t block) {
  Block& here = blocks_[block];
  if (here.live == 0 && here.listed != Listed::kEmpty) {
    here.listed = Listed::kEmpty;
    empty_.push_back(block);
  } else if (here.live != 0 && here.live * 2u <= geometry_.slots_per_block() && here.listed == Listed::kNowhere) {
    here.listed = Listed::kSparse;
    sparse_.push_back(block);
  }
}

void SlotFile::read_block(std::uint64_t block, std::byte* to) {
  const std::size_t bytes = geometry_.block_bytes();
  const auto offset = static_cast<off_t>(block * bytes);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got = pread(file_.get(), to + done, bytes - done, offset + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail("cannot read", "the spill file");
    done += static_cast<std::size_t>(got);
  }
}

void SlotFile::write_blocks(const std::byte* from, std::uint64_t block, std::size_t blocks) {
  const std::size_t bytes = blocks * geometry_.block_bytes();
  const auto offset = static_cast<off_t>(block * geometry_.block_bytes());
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t put = pwrite(file_.get(), from + done, bytes - done, offset + static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0 && (put == 0 || errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      throw SlotFileFull("no space left for the spill file: free some on its device; reads go on meanwhile");
    }
    if (put < 0) fail("cannot write", "the spill file");
    done += static_cast<std::size_t>(put);
  }
  bytes_written_ += bytes;
}

void SlotFile::write(const std::int64_t* ids, const std::byte* const* rows, std::size_t n, SlotNumber* slots) {
  std::size_t taken = 0;
  try {
    std::size_t staged = 0;
    std::uint64_t first = 0;
    const auto flush = [&] {
      if (staged != 0) write_blocks(staging_.data(), first, staged);
      staged = 0;
    };
    while (taken < n) {
      bool holds_rows = false;
      const std::uint64_t block = take_block(holds_rows);
      if (staged == kStagedBlocks || (staged != 0 && block != first + staged)) flush();
      if (staged == 0) first = block;
      std::byte* to = staging_.data() + staged++ * geometry_.block_bytes();
      if (holds_rows) {
        read_block(block, to);
      } else {
        std::memset(to, 0, geometry_.block_bytes());
      }
      for (std::uint64_t i = 0; i < geometry_.slots_per_block() && taken < n; ++i) {
        const SlotNumber slot = block * geometry_.slots_per_block() + i;
        if (used_[slot]) continue;
        std::byte* place = to + i * geometry_.slot_bytes;
        std::memcpy(place, &ids[taken], sizeof(ids[taken]));
        std::memcpy(place + sizeof(ids[taken]), rows[taken], row_bytes_);
        used_[slot] = true;
        ++blocks_[block].live;
        ++live_;
        slots[taken++] = slot;
      }
      list(block);
    }
    flush();
  } catch (const SlotFileFull&) {
    ++writes_refused_;
    undo(slots, taken);
    throw;
  } catch (...) {
    undo(slots, taken);
    throw;
  }
}

void SlotFile::undo(const SlotNumber* slots, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) release(slots[i]);
}

void SlotFile::release(SlotNumber slot) {
  const std::uint64_t block = geometry_.block_of(slot);
  used_[slot] = false;
  --blocks_[block].live;
  --live_;
  list(block);
}

SlotFileStats SlotFile::stats() const noexcept {
  return {.slots_live = live_,
          .bytes = blocks_.size() * geometry_.block_bytes(),
          .bytes_written = bytes_written_,
          .writes_refused = writes_refused_,
          .direct = direct_};
}

}  // namespace paramserver
