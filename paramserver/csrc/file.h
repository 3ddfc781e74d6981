// A file descriptor that closes itself, and whole reads and writes that say what went wrong with which file.
//
// Thread-safety: read_at and write_at from any thread. Ownership: File closes what it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace paramserver {

class File {
 public:
  File() noexcept = default;
  File(int fd, std::string path) noexcept : fd_(fd), path_(std::move(path)) {}
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  // Throws TableFileError; also for anything but a regular file.
  static File open_to_read(const std::string& path);
  // A new file; throws StoreFull, TableFileError.
  static File create(const std::string& path);
  // A new file in `folder` without a name: it is gone when it is closed, also by kill -9.
  static File create_nameless(const std::string& folder);

  int fd() const noexcept { return fd_; }
  const std::string& path() const noexcept { return path_; }

  std::uint64_t bytes() const;
  // All n bytes: throws TableFileError when the system cannot read them, StoreDamaged when the file ends before.
  void read_at(std::uint64_t offset, void* to, std::size_t n) const;
  // All n bytes: throws StoreFull, TableFileError.
  void write_at(std::uint64_t offset, const void* from, std::size_t n) const;
  // Gives the bytes' space back, where the file system can.
  void punch(std::uint64_t offset, std::uint64_t n) const noexcept;
  // Asks the system to begin to write the bytes to the device.
  void begin_write_back(std::uint64_t offset, std::uint64_t n) const noexcept;
  void sync() const;

 private:
  int fd_ = -1;
  std::string path_;
};

// The folder of a path: "." for a bare name.
std::string folder_of(const std::string& path);
void sync_folder(const std::string& folder);
// Throws the error that errno, here `code`, stands for: StoreFull or TableFileError.
[[noreturn]] void throw_file_error(int code, const std::string& path, const char* what);

}  // namespace paramserver
