// The owner's side of a shared table: memory in a file that other processes map (mapped_header.h).
//
// A file that is not complete yet has a temporary name; show() gives it its own. The file is locked for as long as it
// is owned, and goes when its owner ends well; an owner that is killed leaves it behind, readable, for the next owner
// to replace.
// Thread-safety: take and give_back as in memory.h. Ownership: the table's regions keep it alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "paramserver/csrc/mapped_header.h"
#include "paramserver/csrc/memory.h"

namespace paramserver {

inline constexpr std::uint64_t kSharedReserveBytes = std::uint64_t{1} << 40;
inline constexpr std::int64_t kSharedTurn_ns = 20'000'000;

struct MappedMemoryOptions {
  std::string path;
  std::int64_t turn_ns = kSharedTurn_ns;             // readers have at least this long for one look
  std::uint64_t reserve_bytes = kSharedReserveBytes;  // of addresses: the most that the table may become
};

class MappedMemory final : public Memory {
 public:
  // Throws SharedFileLocked when another process owns the path, SharedFileError.
  static std::shared_ptr<MappedMemory> create(const MappedMemoryOptions& options);
  ~MappedMemory() override;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  // Throws MemoryExhausted when the file system has no space, or the reserve is used up.
  Stretch take(std::size_t bytes, bool huge_pages) override;
  void give_back(const Stretch& stretch) noexcept override;
  std::byte* base() const noexcept override { return base_; }
  std::int64_t turn_min_ns() const noexcept override { return options_.turn_ns; }

  // Lets others open it: a table whose TableState is at `state`. Throws SharedFileError.
  void show(std::uint64_t state, const std::string& name, std::int64_t base_sequence);

 private:
  explicit MappedMemory(const MappedMemoryOptions& options) : options_(options) {}
  void lock_path();
  void make_file();
  SharedHeader& header() const noexcept { return *reinterpret_cast<SharedHeader*>(base_); }
  std::uint64_t find_free(std::uint64_t bytes, std::uint64_t alignment) noexcept;
  std::uint64_t extend(std::uint64_t bytes, std::uint64_t alignment);

  MappedMemoryOptions options_;
  int path_fd_ = -1;  // the lock of the path while the new file is being made
  int fd_ = -1;       // the new file
  std::string temporary_;
  std::byte* base_ = nullptr;
  bool huge_allowed_ = false;
  std::map<std::uint64_t, std::uint64_t> free_;  // offset -> bytes of what was given back, neighbours joined
};

}  // namespace paramserver
