#include "paramserver/csrc/snapshot_file_load.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "paramserver/csrc/error.h"

namespace paramserver {
namespace {

// Rows handed to the table at once: its lock is held that long.
constexpr std::uint64_t kRowsAtOnce = 2048;

// Slots of whole pages may lie across a border of blocks; after so many blocks none does.
std::uint64_t step_bytes(const SlotGeometry& geometry) noexcept {
  return geometry.slots_per_page != 0 ? kBlockBytes : std::lcm<std::uint64_t>(kBlockBytes, geometry.slot_bytes);
}

// What the threads of one call share.
class Load {
 public:
  Load(const SnapshotFile& file, Table& table, std::uint64_t first, std::uint64_t end, bool verify)
      : file_(file), table_(table), next_(first), end_(end), verify_(verify) {}

  // Takes step after step until none is left, or one failed.
  void work() noexcept {
    try {
      std::vector<std::byte> bytes(step_bytes(file_.layout().geometry()));
      for (std::uint64_t step = next_++; step < end_; step = next_++) load(step, bytes);
    } catch (...) {
      next_ = end_;
      std::lock_guard<std::mutex> lock(mutex_);
      if (!fault_) fault_ = std::current_exception();
    }
  }

  std::uint64_t finish() {
    if (fault_) std::rethrow_exception(fault_);
    return rows_;
  }

 private:
  void load(std::uint64_t step, std::vector<std::byte>& bytes) {
    const SnapshotLayout::Section& slots = file_.layout().section(SnapshotSection::kSlots);
    const SlotGeometry& geometry = file_.layout().geometry();
    const std::uint64_t start = step * bytes.size();
    const std::uint64_t size = std::min<std::uint64_t>(bytes.size(), slots.bytes - start);
    file_.file().read_at(slots.offset + start, bytes.data(), size);
    for (std::uint64_t at = 0; verify_ && at < size; at += kBlockBytes) {
      file_.check_block(slots.first_block + (start + at) / kBlockBytes, bytes.data() + at);
    }
    const std::uint64_t first = geometry.slot_at(start);
    const std::uint64_t end = std::min(file_.rows(), geometry.slot_at(start + size));
    const std::byte* rows[kRowsAtOnce];
    for (std::uint64_t row = first; row < end; row += kRowsAtOnce) {
      const std::uint64_t count = std::min(kRowsAtOnce, end - row);
      for (std::uint64_t i = 0; i < count; ++i) rows[i] = bytes.data() + geometry.offset(row + i) - start;
      table_.load_rows(file_.ids() + row, rows, count, file_.times() == nullptr ? nullptr : file_.times() + row);
    }
    rows_ += end - first;
  }

  const SnapshotFile& file_;
  Table& table_;
  std::atomic<std::uint64_t> next_;
  const std::uint64_t end_;
  const bool verify_;
  std::atomic<std::uint64_t> rows_{0};
  std::mutex mutex_;
  std::exception_ptr fault_;
};

}  // namespace

void load_default_row(const SnapshotFile& file, Table& table) {
  if (table.stored() != file.header().stored || table.dim() != file.header().dim) {
    throw OptionError(file.path() + ": the table has dim " + std::to_string(table.dim()) + " of " +
                      stored_name(table.stored()) + ", expected " + std::to_string(file.header().dim) + " of " +
                      stored_name(file.header().stored));
  }
  table.load_default_row(file.default_row());
}

std::uint64_t load_steps(const SnapshotFile& file) noexcept {
  const std::uint64_t step = step_bytes(file.layout().geometry());
  return (file.layout().section(SnapshotSection::kSlots).bytes + step - 1) / step;
}

std::uint64_t load_rows(const SnapshotFile& file, Table& table, std::uint64_t first, std::uint64_t end,
                        std::uint64_t ahead, unsigned threads, bool verify) {
  end = std::min(end, load_steps(file));
  const std::uint64_t step = step_bytes(file.layout().geometry());
  ::posix_fadvise(file.file().fd(), static_cast<off_t>(file.slots_offset() + first * step),
                  static_cast<off_t>((end - first + ahead) * step), POSIX_FADV_WILLNEED);
  Load load(file, table, first, end, verify);
  std::vector<std::jthread> pool;
  for (unsigned i = 1; i < threads && i < end - first; ++i) pool.emplace_back([&load] { load.work(); });
  load.work();
  pool.clear();
  return load.finish();
}

}  // namespace paramserver
