#include "paramserver/csrc/snapshot_file_builder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/hash.h"

namespace paramserver {
namespace {

constexpr int kPartitionBitsMax = 12;
constexpr std::uint64_t kMemoryBytesMin = std::uint64_t{1} << 20;
constexpr std::size_t kChunkBytesMin = std::size_t{16} << 10;
constexpr std::size_t kChunkBytesMax = std::size_t{1} << 20;
// Rows converted to records at a time, so that the lock is taken once for many.
constexpr std::size_t kGroup = 256;

std::size_t record_bytes_of(const SnapshotHeader& header) { return 8 + (header.times ? 4 : 0) + header.row_bytes(); }

int bits_for(std::uint64_t rows, std::size_t record_bytes, std::uint64_t memory_bytes_max) {
  const std::uint64_t partition_bytes = std::max(kMemoryBytesMin, memory_bytes_max) / 4;
  const std::uint64_t wanted = rows * record_bytes / partition_bytes;
  return std::min<int>(kPartitionBitsMax, std::bit_width(wanted));
}

std::size_t chunk_bytes_of(std::size_t record_bytes, std::uint64_t memory_bytes_max, int partition_bits) {
  const std::size_t share = std::clamp<std::size_t>(memory_bytes_max / 4 >> partition_bits, kChunkBytesMin,
                                                    kChunkBytesMax);
  return std::max<std::size_t>(1, share / record_bytes) * record_bytes;
}

}  // namespace

SnapshotBuilder::SnapshotBuilder(std::string path, const SnapshotHeader& header, const std::byte* default_row,
                                 std::uint64_t memory_bytes_max)
    : path_(std::move(path)),
      header_(header),
      default_row_(default_row, default_row + header.row_bytes()),
      record_bytes_(record_bytes_of(header)),
      memory_bytes_max_(memory_bytes_max),
      partition_bits_(bits_for(header.rows, record_bytes_, memory_bytes_max)),
      chunk_bytes_(chunk_bytes_of(record_bytes_, memory_bytes_max, partition_bits_)),
      partitions_(std::size_t{1} << partition_bits_) {}

std::uint64_t SnapshotBuilder::rows() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return rows_;
}

std::uint64_t SnapshotBuilder::spilled_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return spilled_bytes_;
}

void SnapshotBuilder::add(const std::int64_t* ids, const std::byte* rows, const std::uint32_t* times, std::size_t n) {
  const std::size_t row_bytes = header_.row_bytes();
  std::vector<std::byte> records(std::min(n, kGroup) * record_bytes_);
  std::array<std::size_t, kGroup> places;
  for (std::size_t first = 0; first < n; first += kGroup) {
    const std::size_t count = std::min(kGroup, n - first);
    std::byte* record = records.data();
    for (std::size_t i = first; i < first + count; ++i, record += record_bytes_) {
      std::memcpy(record, &ids[i], 8);
      if (header_.times) std::memcpy(record + 8, &times[i], 4);
      std::memcpy(record + record_bytes_ - row_bytes, rows + i * row_bytes, row_bytes);
      // A shift by 64 is undefined, and one partition has no bits.
      places[i - first] = partition_bits_ == 0 ? 0 : mix(ids[i]) >> (64 - partition_bits_);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) put(partitions_[places[i]], records.data() + i * record_bytes_);
    rows_ += count;
  }
}

void SnapshotBuilder::put(Partition& partition, const std::byte* record) {
  if (partition.filling.capacity() == 0) partition.filling.reserve(chunk_bytes_);
  partition.filling.insert(partition.filling.end(), record, record + record_bytes_);
  ++partition.records;
  if (partition.filling.size() == chunk_bytes_) close_chunk(partition);
}

void SnapshotBuilder::close_chunk(Partition& partition) {
  Chunk chunk{.memory = {}, .offset = spilled_bytes_, .bytes = partition.filling.size()};
  if (memory_bytes_ + chunk.bytes <= memory_bytes_max_) {
    memory_bytes_ += chunk.bytes;
    chunk.memory = std::move(partition.filling);
    partition.filling = {};
  } else {
    if (spill_.fd() < 0) spill_ = File::create_nameless(folder_of(path_));
    spill_.write_at(spilled_bytes_, partition.filling.data(), chunk.bytes);
    spilled_bytes_ += chunk.bytes;
    partition.filling.clear();
  }
  partition.full.push_back(std::move(chunk));
}

SnapshotBuilder::Sorted SnapshotBuilder::sorted(Partition& partition) {
  Sorted sorted;
  sorted.records.reserve(partition.records);
  sorted.memory.reserve(partition.full.size() + 1);
  for (Chunk& chunk : partition.full) {
    if (chunk.memory.empty()) {
      chunk.memory.resize(chunk.bytes);
      spill_.read_at(chunk.offset, chunk.memory.data(), chunk.bytes);
      spill_.punch(chunk.offset, chunk.bytes);
    }
    sorted.memory.push_back(std::move(chunk.memory));
  }
  sorted.memory.push_back(std::move(partition.filling));
  partition = {};
  for (const std::vector<std::byte>& memory : sorted.memory) {
    for (std::size_t at = 0; at < memory.size(); at += record_bytes_) {
      std::int64_t id;
      std::memcpy(&id, memory.data() + at, sizeof id);
      sorted.records.push_back({mix(id), memory.data() + at});
    }
  }
  std::sort(sorted.records.begin(), sorted.records.end(), [](auto& a, auto& b) { return a.hash < b.hash; });
  return sorted;
}

void SnapshotBuilder::fetch_next() {
  if (next_partition_ == partitions_.size()) return;
  Partition& partition = partitions_[next_partition_++];
  next_ = std::async(std::launch::async, [this, &partition] { return sorted(partition); });
}

bool SnapshotBuilder::write_partition() {
  if (writer_ == nullptr) {
    header_.rows = rows_;
    writer_ = std::make_unique<SnapshotWriter>(path_, header_, default_row_.data());
    fetch_next();
  }
  if (!next_.valid()) return false;
  const Sorted now = next_.get();
  fetch_next();
  write(now);
  return true;
}

void SnapshotBuilder::write(const Sorted& sorted) {
  std::array<std::int64_t, kGroup> ids;
  std::array<std::uint32_t, kGroup> times;
  std::array<const std::byte*, kGroup> rows;
  const std::size_t row_at = record_bytes_ - header_.row_bytes();
  for (std::size_t first = 0; first < sorted.records.size(); first += kGroup) {
    const std::size_t count = std::min(kGroup, sorted.records.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* record = sorted.records[first + i].bytes;
      std::memcpy(&ids[i], record, 8);
      if (header_.times) std::memcpy(&times[i], record + 8, 4);
      rows[i] = record + row_at;
    }
    writer_->append(ids.data(), rows.data(), times.data(), count);
    rows_written_ += count;
  }
}

void SnapshotBuilder::finish() { writer_->finish(); }

}  // namespace paramserver
