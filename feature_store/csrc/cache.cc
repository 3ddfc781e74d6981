#include "feature_store/csrc/cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "feature_store/csrc/errors.h"

namespace feature_store {
namespace {

constexpr std::uint64_t kMagic = 0x31454843'41435346ULL;  // "FSCACHE1", little-endian
constexpr std::size_t kAlign = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct Header {
  std::uint64_t magic, bytes, rows, index_at, index_slots, columns_at, columns, reserved;
};
static_assert(sizeof(Header) == 64);

struct IndexSlot {
  std::uint64_t key;
  std::uint64_t row_plus_1;
};

struct ColumnHeader {
  std::uint32_t dtype, ragged, width, all_present;
  std::uint64_t values_at, row_offsets_at, byte_offsets_at, presence_at, reserved[2];
};
static_assert(sizeof(ColumnHeader) == 64);

// The finaliser of MurmurHash3: neighbouring ids land far apart.
std::uint64_t mix(std::uint64_t key) noexcept {
  key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdULL;
  key = (key ^ (key >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return key ^ (key >> 33);
}

// Gives out places in the block one after the other.
class Layout64 {
 public:
  std::uint64_t take(std::uint64_t bytes) noexcept {
    const std::uint64_t at = next_;
    next_ = (next_ + bytes + kAlign - 1) / kAlign * kAlign;
    return at;
  }
  std::uint64_t end() const noexcept { return next_; }

 private:
  std::uint64_t next_ = 0;
};

std::uint64_t value_count(const CellsView& cells, std::size_t rows) noexcept {
  return cells.ragged ? static_cast<std::uint64_t>(cells.row_offsets[rows]) : std::uint64_t{rows} * cells.width;
}

ColumnHeader place(const CellsView& cells, std::size_t rows, Layout64& layout) noexcept {
  ColumnHeader header{};
  header.dtype = static_cast<std::uint32_t>(cells.dtype);
  header.ragged = cells.ragged;
  header.width = cells.width;
  header.all_present = std::all_of(cells.present, cells.present + rows, [](std::uint8_t bit) { return bit != 0; });
  header.values_at = layout.take(cells.value_bytes + cells.default_bytes);
  if (cells.ragged) header.row_offsets_at = layout.take((rows + 2) * sizeof(std::int64_t));
  if (cells.dtype == DType::kBytes) {
    const std::uint64_t defaults = cells.ragged ? 0 : cells.width;
    header.byte_offsets_at = layout.take((value_count(cells, rows) + defaults + 1) * sizeof(std::int64_t));
  }
  header.presence_at = layout.take((rows / 64 + 1) * sizeof(std::uint64_t));
  return header;
}

void copy(void* to, const void* from, std::uint64_t bytes) noexcept {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

void fill(const CellsView& cells, std::size_t rows, const ColumnHeader& header, char* block) noexcept {
  copy(block + header.values_at, cells.values, cells.value_bytes);
  copy(block + header.values_at + cells.value_bytes, cells.default_values, cells.default_bytes);
  if (cells.ragged) {
    auto* offsets = reinterpret_cast<std::int64_t*>(block + header.row_offsets_at);
    copy(offsets, cells.row_offsets, (rows + 1) * sizeof(std::int64_t));
    offsets[rows + 1] = offsets[rows];
  }
  if (cells.dtype == DType::kBytes) {
    const std::uint64_t values = value_count(cells, rows);
    auto* offsets = reinterpret_cast<std::int64_t*>(block + header.byte_offsets_at);
    copy(offsets, cells.byte_offsets, (values + 1) * sizeof(std::int64_t));
    for (std::uint32_t i = 1; !cells.ragged && i <= cells.width; ++i) {
      offsets[values + i] = offsets[values] + cells.default_byte_offsets[i];
    }
  }
  auto* presence = reinterpret_cast<std::uint64_t*>(block + header.presence_at);
  for (std::size_t row = 0; row < rows; ++row) {
    presence[row >> 6] |= std::uint64_t{cells.present[row] != 0} << (row & 63);
  }
}

const Header& header_of(const char* block) noexcept { return *reinterpret_cast<const Header*>(block); }

}  // namespace

Cache::Cache(std::size_t bytes) : bytes_(bytes) {
  void* block = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) {
    throw StorageError("feature cache: the system refused " + std::to_string(bytes) +
                       " bytes; store fewer rows or features, or raise the memory limit");
  }
  // Advice only: where huge pages are missing, the block works on small ones.
  if (bytes >= kHugePage) ::madvise(block, bytes, MADV_HUGEPAGE);
  block_ = static_cast<char*>(block);
}

Cache::~Cache() { ::munmap(block_, bytes_); }

std::shared_ptr<const Cache> Cache::build(const std::int64_t* keys, std::size_t rows,
                                          const std::vector<CellsView>& columns) {
  if (rows >= 0xffffffffULL) throw DataError("feature cache: got " + std::to_string(rows) + " rows, at most 2**32 - 2");
  Layout64 layout;
  layout.take(sizeof(Header));
  Header header{kMagic, 0, rows, 0, std::bit_ceil(std::max<std::uint64_t>(rows * 2, 2)), 0, columns.size(), 0};
  header.index_at = layout.take(header.index_slots * sizeof(IndexSlot));
  header.columns_at = layout.take(columns.size() * sizeof(ColumnHeader));
  std::vector<ColumnHeader> places;
  places.reserve(columns.size());
  for (const CellsView& cells : columns) places.push_back(place(cells, rows, layout));
  header.bytes = layout.end();

  std::shared_ptr<Cache> cache(new Cache(header.bytes));
  std::memcpy(cache->block_, &header, sizeof header);
  copy(cache->block_ + header.columns_at, places.data(), places.size() * sizeof(ColumnHeader));
  for (std::size_t i = 0; i < columns.size(); ++i) fill(columns[i], rows, places[i], cache->block_);
  cache->fill_index(keys);
  return cache;
}

void Cache::fill_index(const std::int64_t* keys) {
  const Header& header = header_of(block_);
  auto* slots = reinterpret_cast<IndexSlot*>(block_ + header.index_at);
  const std::uint64_t mask = header.index_slots - 1;
  for (std::uint64_t row = 0; row < header.rows; ++row) {
    const auto key = static_cast<std::uint64_t>(keys[row]);
    std::uint64_t at = mix(key) & mask;
    for (; slots[at].row_plus_1 != 0; at = (at + 1) & mask) {
      if (slots[at].key == key) {
        throw DataError("feature cache: id " + std::to_string(keys[row]) + " stands in row " +
                        std::to_string(slots[at].row_plus_1 - 1) + " and again in row " + std::to_string(row) +
                        "; ids must be unique");
      }
    }
    slots[at] = {key, row + 1};
  }
}

std::size_t Cache::rows() const noexcept { return header_of(block_).rows; }

std::size_t Cache::columns() const noexcept { return header_of(block_).columns; }

StoredColumn Cache::column(std::size_t i) const noexcept {
  const Header& header = header_of(block_);
  const auto& place = reinterpret_cast<const ColumnHeader*>(block_ + header.columns_at)[i];
  const auto offsets = [this](std::uint64_t at) {
    return at == 0 ? nullptr : reinterpret_cast<const std::int64_t*>(block_ + at);
  };
  return {static_cast<DType>(place.dtype), place.ragged != 0, place.all_present != 0, place.width,
          block_ + place.values_at, offsets(place.row_offsets_at), offsets(place.byte_offsets_at),
          reinterpret_cast<const std::uint64_t*>(block_ + place.presence_at)};
}

void Cache::find(const std::int64_t* keys, std::size_t n, std::uint32_t* found) const noexcept {
  // Hash and prefetch a block of keys before probing any, so that their cache misses overlap.
  constexpr std::size_t kBlock = 32;
  const Header& header = header_of(block_);
  const auto* slots = reinterpret_cast<const IndexSlot*>(block_ + header.index_at);
  const std::uint64_t mask = header.index_slots - 1;
  std::uint64_t starts[kBlock];
  for (std::size_t base = 0; base < n; base += kBlock) {
    const std::size_t count = std::min(kBlock, n - base);
    for (std::size_t i = 0; i < count; ++i) {
      starts[i] = mix(static_cast<std::uint64_t>(keys[base + i])) & mask;
      __builtin_prefetch(&slots[starts[i]]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto key = static_cast<std::uint64_t>(keys[base + i]);
      std::uint64_t at = starts[i];
      while (slots[at].row_plus_1 != 0 && slots[at].key != key) at = (at + 1) & mask;
      found[base + i] = static_cast<std::uint32_t>(slots[at].row_plus_1 == 0 ? header.rows : slots[at].row_plus_1 - 1);
    }
  }
}

}  // namespace feature_store
