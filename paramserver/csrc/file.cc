#include "paramserver/csrc/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

constexpr mode_t kMode = 0644;
// The system reads and writes at most 2 GiB at once.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

}  // namespace

void throw_file_error(int code, const std::string& path, const char* what) {
  const std::string message = path + ": cannot " + what + ": " + std::strerror(code);
  if (code == ENOSPC || code == EDQUOT || code == EFBIG) {
    throw StoreFull(message + ": nothing was published, free space and repeat");
  }
  throw TableFileError(message);
}

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File File::open_to_read(const std::string& path) {
  // Without O_NONBLOCK the opening of a pipe would wait for its writer.
  File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), path);
  if (file.fd() < 0) throw_file_error(errno, path, "open it");
  struct stat status;
  if (::fstat(file.fd(), &status) != 0) throw_file_error(errno, path, "read its size");
  if (!S_ISREG(status.st_mode)) throw TableFileError(path + ": is no regular file");
  return file;
}

File File::create(const std::string& path) {
  File file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode), path);
  if (file.fd() < 0) throw_file_error(errno, path, "create it");
  return file;
}

File File::create_nameless(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, kMode);
  if (fd >= 0) return File(fd, folder);
  // Some file systems have no nameless files.
  std::string name = folder + "/.spill.XXXXXX";
  File file(::mkostemp(name.data(), O_CLOEXEC), name);
  if (file.fd() < 0) throw_file_error(errno, folder, "create a temporary file");
  ::unlink(name.c_str());
  return file;
}

std::uint64_t File::bytes() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) throw_file_error(errno, path_, "read its size");
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read_at(std::uint64_t offset, void* to, std::size_t n) const {
  auto* at = static_cast<std::byte*>(to);
  while (n > 0) {
    const ssize_t got = ::pread(fd_, at, n < kPieceBytes ? n : kPieceBytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error(errno, path_, "read it");
    if (got == 0) throw StoreDamaged(path_ + ": ends before byte " + std::to_string(offset + n) + ": it was cut");
    at += got;
    offset += static_cast<std::uint64_t>(got);
    n -= static_cast<std::size_t>(got);
  }
}

void File::write_at(std::uint64_t offset, const void* from, std::size_t n) const {
  const auto* at = static_cast<const std::byte*>(from);
  while (n > 0) {
    const ssize_t put = ::pwrite(fd_, at, n < kPieceBytes ? n : kPieceBytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw_file_error(put < 0 ? errno : ENOSPC, path_, "write it");
    at += put;
    offset += static_cast<std::uint64_t>(put);
    n -= static_cast<std::size_t>(put);
  }
}

void File::punch(std::uint64_t offset, std::uint64_t n) const noexcept {
  ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(n));
}

void File::begin_write_back(std::uint64_t offset, std::uint64_t n) const noexcept {
  ::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(n), SYNC_FILE_RANGE_WRITE);
}

void File::sync() const {
  if (::fsync(fd_) != 0) throw_file_error(errno, path_, "sync it");
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void sync_folder(const std::string& folder) {
  const File file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), folder);
  if (file.fd() < 0) throw_file_error(errno, folder, "open it");
  file.sync();
}

}  // namespace paramserver
