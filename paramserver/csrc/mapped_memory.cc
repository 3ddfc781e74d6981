#include "paramserver/csrc/mapped_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>

#include "paramserver/csrc/table_state.h"

namespace paramserver {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw SharedFileError(path + ": cannot " + what + " the file of a shared table: " + std::strerror(errno));
}

// The lock belongs to the open file, so it ends with the process however that ends, and others can ask for it.
bool lock(int fd) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

bool names(const std::string& path, int fd) {
  struct stat by_name {}, by_fd {};
  return stat(path.c_str(), &by_name) == 0 && fstat(fd, &by_fd) == 0 && by_name.st_ino == by_fd.st_ino &&
         by_name.st_dev == by_fd.st_dev;
}

// Whether the kernel backs shared memory with huge pages when advised: madvise succeeds in any case.
bool huge_pages_allowed() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string choice;
  while (file >> choice) {
    if (choice == "[advise]" || choice == "[always]" || choice == "[within_size]" || choice == "[force]") return true;
  }
  return false;
}

}  // namespace

std::shared_ptr<MappedMemory> MappedMemory::create(const MappedMemoryOptions& options) {
  std::shared_ptr<MappedMemory> memory(new MappedMemory(options));
  memory->lock_path();
  memory->make_file();
  return memory;
}

// Whoever holds the lock of the file that the path names owns the path. A file that was replaced or removed between
// open and lock is not that file any more.
void MappedMemory::lock_path() {
  for (;;) {
    path_fd_ = open(options_.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (path_fd_ < 0) fail(options_.path, "open");
    if (!lock(path_fd_)) {
      close(path_fd_);
      path_fd_ = -1;
      throw SharedFileLocked(options_.path + ": another process owns this shared table: end it, or take another path");
    }
    if (names(options_.path, path_fd_)) return;
    close(path_fd_);
  }
}

void MappedMemory::make_file() {
  temporary_ = options_.path + "." + std::to_string(getpid()) + ".tmp";
  unlink(temporary_.c_str());
  fd_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0 || !lock(fd_)) fail(temporary_, "make");
  void* at = mmap(nullptr, options_.reserve_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (at == MAP_FAILED) {
    throw SharedFileError(options_.path + ": cannot reserve " + std::to_string(options_.reserve_bytes) +
                          " bytes of addresses (" + std::strerror(errno) + "): raise the limit of virtual memory");
  }
  base_ = static_cast<std::byte*>(at);
  huge_allowed_ = huge_pages_allowed();
  if (const int code = posix_fallocate(fd_, 0, kSharedHeaderBytes); code != 0) {
    errno = code;
    fail(options_.path, "find space for");
  }
  new (base_) SharedHeader{.magic = kSharedMagic,
                           .format = kSharedFormat,
                           .state_bytes = 0,
                           .reserve_bytes = options_.reserve_bytes};
  header().file_bytes.store(kSharedHeaderBytes, std::memory_order_release);
}

MappedMemory::~MappedMemory() {
  if (base_ != nullptr) munmap(base_, options_.reserve_bytes);
  if (fd_ >= 0) {
    if (!temporary_.empty()) unlink(temporary_.c_str());
    if (names(options_.path, fd_)) unlink(options_.path.c_str());
    close(fd_);
  }
  if (path_fd_ >= 0) {
    // The path was empty before this owner, which has not come to show its table.
    struct stat found {};
    if (fstat(path_fd_, &found) == 0 && found.st_size == 0 && names(options_.path, path_fd_)) {
      unlink(options_.path.c_str());
    }
    close(path_fd_);
  }
}

Memory::Stretch MappedMemory::take(std::size_t bytes, bool huge_pages) {
  const bool huge = huge_pages && bytes >= kHugePageBytes;
  const std::uint64_t alignment = huge ? kHugePageBytes : kPageBytes;
  const std::uint64_t size = round_up(bytes, alignment);
  std::uint64_t offset = find_free(size, alignment);
  if (offset != 0) {
    std::memset(base_ + offset, 0, size);
  } else {
    offset = extend(size, alignment);
  }
  const bool advised = huge && madvise(base_ + offset, size, MADV_HUGEPAGE) == 0;
  return {base_ + offset, size, advised && huge_allowed_};
}

// The first place among what was given back, 0 when there is none: offset 0 is the header's.
std::uint64_t MappedMemory::find_free(std::uint64_t bytes, std::uint64_t alignment) noexcept {
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const std::uint64_t first = hole->first, end = first + hole->second;
    const std::uint64_t offset = round_up(first, alignment);
    if (offset + bytes > end) continue;
    if (offset == first) {
      free_.erase(hole);
    } else {
      hole->second = offset - first;
    }
    if (offset + bytes < end) free_.emplace(offset + bytes, end - offset - bytes);
    return offset;
  }
  return 0;
}

std::uint64_t MappedMemory::extend(std::uint64_t bytes, std::uint64_t alignment) {
  const std::uint64_t end = header().file_bytes.load(std::memory_order_relaxed);
  const std::uint64_t offset = round_up(end, alignment);
  if (bytes > options_.reserve_bytes || offset > options_.reserve_bytes - bytes) {
    throw MemoryExhausted(options_.path + ": a shared table may become " + std::to_string(options_.reserve_bytes) +
                          " bytes, and " + std::to_string(bytes) + " more were asked for: spread it over shards");
  }
  // Space now, or an error now: touching a page that the file system cannot give would end the process.
  const int code = posix_fallocate(fd_, static_cast<off_t>(end), static_cast<off_t>(offset + bytes - end));
  if (code != 0) {
    throw MemoryExhausted(options_.path + ": no space for " + std::to_string(offset + bytes - end) +
                          " more bytes of a shared table (" + std::strerror(code) +
                          "): make room in its file system, or lower rows_hint");
  }
  header().file_bytes.store(offset + bytes, std::memory_order_release);
  if (offset != end) give_back({base_ + end, offset - end, false});
  return offset;
}

void MappedMemory::give_back(const Stretch& stretch) noexcept {
  std::uint64_t first = static_cast<std::uint64_t>(stretch.data - base_);
  std::uint64_t end = first + stretch.bytes;
  auto next = free_.lower_bound(first);
  if (next != free_.end() && next->first == end) {
    end += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      before->second = end - before->first;
      return;
    }
  }
  free_.emplace_hint(next, first, end - first);
}

void MappedMemory::show(std::uint64_t state, const std::string& name, std::int64_t base_sequence) {
  SharedHeader& shown = header();
  shown.state_bytes = sizeof(TableState);
  shown.state = state;
  shown.base_sequence = base_sequence;
  shown.name_bytes = std::min(name.size(), kSharedNameBytesMax);
  std::memcpy(shown.name, name.data(), shown.name_bytes);
  if (rename(temporary_.c_str(), options_.path.c_str()) != 0) fail(options_.path, "name");
  temporary_.clear();
  close(path_fd_);
  path_fd_ = -1;
}

}  // namespace paramserver
