#include "feature_store/csrc/extractor.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "feature_store/csrc/cells.h"
#include "feature_store/csrc/errors.h"
#include "feature_store/csrc/fp_modes.h"
#include "feature_store/csrc/xxh64.h"

namespace feature_store {
namespace {

constexpr std::size_t kTileRows = 256;
// A cache larger than a core's own caches is worth prefetching from.
constexpr std::size_t kPrefetchBytes = std::size_t{1} << 20;

std::size_t value_size(DType dtype) noexcept { return dtype == DType::kF32 ? 4 : 8; }

Range cut(Range range, const std::vector<Cut>& cuts) noexcept {
  for (const Cut& step : cuts) {
    if (range.size() <= step.length) continue;
    if (step.keep_last) range.begin = range.end - step.length;
    else range.end = range.begin + step.length;
  }
  return range;
}

// Writes the values of one cell; gives back where the next cell's go.
template <class Cells>
char* write_cell(const Cells& cells, Range range, bool is_bytes, std::size_t size, std::uint64_t seed,
                 char* to) noexcept {
  if (!is_bytes) {
    // A cell without values may lie in a column without a buffer.
    if (range.size() != 0) std::memcpy(to, cells.values() + range.begin * size, range.size() * size);
    return to + range.size() * size;
  }
  for (std::uint64_t value = range.begin; value < range.end; ++value, to += sizeof(std::uint64_t)) {
    const Range bytes = cells.bytes(value);
    const std::uint64_t hash = xxh64(cells.values() + bytes.begin, bytes.size(), seed);
    std::memcpy(to, &hash, sizeof hash);
  }
  return to;
}

template <class Cells>
std::size_t load_ragged(const Cells& cells, const Load& step, bool is_bytes, std::size_t size, std::size_t n,
                        char* to, std::int32_t* lengths) noexcept {
  std::size_t total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Range range = cut(cells.ragged(i), step.cuts);
    to = write_cell(cells, range, is_bytes, size, step.hash_seed, to);
    lengths[i] = static_cast<std::int32_t>(range.size());
    total += range.size();
  }
  return total;
}

template <class Cells>
void load_dense(const Cells& cells, bool is_bytes, std::size_t size, std::uint64_t seed, std::size_t n,
                char* to) noexcept {
  for (std::size_t i = 0; i < n; ++i) to = write_cell(cells, cells.dense(i), is_bytes, size, seed, to);
}

// Asks for the memory that the loads of a tile will touch, one level of offsets after the other, so that the cache
// misses of all its rows overlap.
void prefetch(const StoredColumn& column, bool is_bytes, std::size_t size, const std::uint32_t* rows,
              std::size_t n) noexcept {
  const auto* values = static_cast<const char*>(column.values);
  if (column.ragged) {
    for (std::size_t i = 0; i < n; ++i) __builtin_prefetch(column.row_offsets + rows[i]);
  }
  const auto first = [&column, rows](std::size_t i) {
    return column.ragged ? column.row_offsets[rows[i]] : std::int64_t{rows[i]} * column.width;
  };
  if (is_bytes) {
    for (std::size_t i = 0; i < n; ++i) __builtin_prefetch(column.byte_offsets + first(i));
    for (std::size_t i = 0; i < n; ++i) __builtin_prefetch(values + column.byte_offsets[first(i)]);
  } else {
    for (std::size_t i = 0; i < n; ++i) __builtin_prefetch(values + first(i) * static_cast<std::int64_t>(size));
  }
}

// Values that lie packed at the front of `values` move to rows of `width`; from the last row to the first, a row never
// overwrites one that has yet to move.
template <class T>
void spread(T* values, std::size_t width, const std::int32_t* lengths, std::size_t n, std::size_t total,
            T pad) noexcept {
  std::size_t from = total;
  for (std::size_t i = n; i-- > 0;) {
    const auto length = static_cast<std::size_t>(lengths[i]);
    from -= length;
    T* row = values + i * width;
    std::memmove(row, values + from, length * sizeof(T));
    std::fill(row + length, row + width, pad);
  }
}

}  // namespace

// Up to kTileRows rows of a gather: where they are stored, and what the request brought for them.
struct Extractor::Tile {
  std::size_t start, n;
  const std::uint32_t* rows;  // [n] in the cache
  const ColumnView* columns;  // [features], or null
  const std::int64_t* keys;   // [n]
  bool given(std::uint32_t feature) const noexcept { return columns != nullptr && columns[feature].given; }
};

Extractor::Extractor(std::vector<FeatureSpec> features, std::vector<SlotProgram> programs,
                     std::shared_ptr<const Cache> cache, std::vector<std::int32_t> cache_columns, Isa isa)
    : features_(std::move(features)), programs_(std::move(programs)), cache_(std::move(cache)),
      kernels_(&kernels(isa)) {
  if (!cache_ || cache_columns.size() != features_.size()) throw ProgrammerError("extractor: no cache or column map");
  for (std::size_t f = 0; f < features_.size(); ++f) {
    StoredColumn column{};
    is_key_.push_back(cache_columns[f] == kKeyColumn);
    if (is_key_[f]) {
      if (features_[f].dtype != DType::kI64 || features_[f].layout != Layout::kDense || features_[f].width != 1) {
        throw ProgrammerError("extractor: feature '" + features_[f].name + "' is a key but not a single id");
      }
      used_.push_back(static_cast<std::uint32_t>(f));
    } else if (cache_columns[f] >= 0) {
      const auto place = static_cast<std::size_t>(cache_columns[f]);
      if (place >= cache_->columns()) throw ProgrammerError("extractor: column map points outside the cache");
      column = cache_->column(place);
      if (column.dtype != features_[f].dtype || column.width != features_[f].width ||
          column.ragged != (features_[f].layout == Layout::kRagged)) {
        throw ProgrammerError("extractor: stored column of feature '" + features_[f].name + "' differs from it");
      }
      used_.push_back(static_cast<std::uint32_t>(f));
    }
    stored_.push_back(column);
  }
  for (const SlotProgram& program : programs_) {
    check(program);
    slots_.push_back(program.spec);
  }
}

void Extractor::check(const SlotProgram& program) const {
  const auto require = [&program](bool ok, const char* what) {
    if (!ok) throw ProgrammerError("extractor: slot '" + program.spec.name + "': " + what);
  };
  const auto stored = [this](std::uint32_t f) {
    return f < features_.size() && (is_key_[f] || stored_[f].presence != nullptr);
  };
  require(stored(program.load.feature), "feature has no column");
  const FeatureSpec& feature = features_[program.load.feature];
  const bool is_f32 = feature.dtype == DType::kF32, ragged = feature.layout == Layout::kRagged;
  require(is_f32 || (program.float_ops.empty() && program.boundaries.empty()), "float operations on ids");
  require(program.spec.dtype == (is_f32 && program.boundaries.empty() ? DType::kF32 : DType::kI64), "dtype");
  require(ragged != (program.spec.layout == Layout::kDense), "layout");
  std::uint32_t width = feature.width;
  for (const Cut& step : program.load.cuts) width = std::min(width, step.length);
  require(program.spec.layout == Layout::kPadded ? program.spec.width >= width : program.spec.width == width, "width");
  require(program.load.cuts.empty() || ragged, "cuts of a dense feature");
  for (const CrossOp& op : program.crosses) {
    require(!ragged && width == 1 && program.spec.dtype == DType::kI64, "cross of many values");
    require(stored(op.feature) && features_[op.feature].layout == Layout::kDense && features_[op.feature].width == 1 &&
                features_[op.feature].dtype != DType::kF32, "cross with a feature that is not a single id");
  }
}

void Extractor::require_room(std::size_t i, std::size_t n, std::size_t value_bytes, std::size_t offsets,
                             std::size_t lengths) const {
  const SlotSpec& spec = slots_.at(i);
  if (n > 0x7fffffffULL / spec.width || value_bytes < n * spec.width * value_size(spec.dtype) ||
      offsets < (spec.layout == Layout::kRagged ? n + 1 : 0) || lengths < (spec.layout == Layout::kPadded ? n : 0)) {
    throw ProgrammerError("extractor: slot '" + spec.name + "' has no room for " + std::to_string(n) + " rows");
  }
}

void Extractor::gather(const std::int64_t* keys, std::size_t n, const ColumnView* columns, const SlotOut* outs,
                       std::uint8_t* known, GatherStats* stats) const noexcept {
  const DefaultFpModes modes;
  const auto unknown = static_cast<std::uint32_t>(cache_->rows());
  std::uint32_t rows[kTileRows];
  for (std::size_t s = 0; s < programs_.size(); ++s) {
    if (outs[s].offsets != nullptr) outs[s].offsets[0] = 0;
  }
  for (std::size_t start = 0; start < n; start += kTileRows) {
    const Tile tile{start, std::min(kTileRows, n - start), rows, columns, keys + start};
    cache_->find(tile.keys, tile.n, rows);
    if (known != nullptr) {
      for (std::size_t i = 0; i < tile.n; ++i) known[start + i] = rows[i] != unknown;
    }
    for (std::size_t s = 0; s < programs_.size(); ++s) run_slot(programs_[s], tile, outs[s]);
    if (stats != nullptr) count(tile, *stats);
  }
}

void Extractor::run_slot(const SlotProgram& program, const Tile& tile, const SlotOut& out) const noexcept {
  const SlotSpec& spec = program.spec;
  const std::size_t size = value_size(spec.dtype);
  const bool ragged = spec.layout == Layout::kRagged;
  const std::size_t first = ragged ? static_cast<std::size_t>(out.offsets[tile.start]) : tile.start * spec.width;
  char* values = static_cast<char*>(out.values) + first * size;
  std::int32_t lengths[kTileRows];
  const std::size_t total = load(program.load, tile, values, lengths);
  transform(program, tile, total, values);
  if (ragged) {
    std::int32_t* offsets = out.offsets + tile.start;
    for (std::size_t i = 0; i < tile.n; ++i) offsets[i + 1] = offsets[i] + lengths[i];
  } else if (spec.layout == Layout::kPadded) {
    if (spec.dtype == DType::kF32) {
      spread(reinterpret_cast<float*>(values), spec.width, lengths, tile.n, total, program.pad_f32);
    } else {
      spread(reinterpret_cast<std::int64_t*>(values), spec.width, lengths, tile.n, total, program.pad_i64);
    }
    std::copy_n(lengths, tile.n, out.lengths + tile.start);
  }
}

// Packs the tile's raw values at `to` (bytes as their hashes) and gives back how many.
std::size_t Extractor::load(const Load& step, const Tile& tile, char* to, std::int32_t* lengths) const noexcept {
  const FeatureSpec& feature = features_[step.feature];
  const bool is_bytes = feature.dtype == DType::kBytes, ragged = feature.layout == Layout::kRagged;
  const std::size_t size = value_size(feature.dtype);
  if (tile.given(step.feature)) {
    const RequestCells cells{tile.columns[step.feature], tile.start, feature.width};
    if (ragged) return load_ragged(cells, step, is_bytes, size, tile.n, to, lengths);
    if (is_bytes) load_dense(cells, true, size, step.hash_seed, tile.n, to);
    else std::memcpy(to, cells.values() + tile.start * feature.width * size, tile.n * feature.width * size);
    return tile.n * feature.width;
  }
  if (is_key_[step.feature]) {
    std::memcpy(to, tile.keys, tile.n * sizeof(std::int64_t));
    return tile.n;
  }
  const StoredColumn& column = stored_[step.feature];
  const StoredCells cells{column, tile.rows};
  if (cache_->bytes() > kPrefetchBytes) prefetch(column, is_bytes, size, tile.rows, tile.n);
  if (ragged) return load_ragged(cells, step, is_bytes, size, tile.n, to, lengths);
  if (is_bytes || feature.width != 1) {
    load_dense(cells, is_bytes, size, step.hash_seed, tile.n, to);
  } else if (size == 4) {
    kernels_->gather32(static_cast<const std::uint32_t*>(column.values), tile.rows, tile.n,
                       reinterpret_cast<std::uint32_t*>(to));
  } else {
    kernels_->gather64(static_cast<const std::uint64_t*>(column.values), tile.rows, tile.n,
                       reinterpret_cast<std::uint64_t*>(to));
  }
  return tile.n * feature.width;
}

void Extractor::transform(const SlotProgram& program, const Tile& tile, std::size_t count,
                          char* values) const noexcept {
  auto* floats = reinterpret_cast<float*>(values);
  for (const FloatOp& op : program.float_ops) {
    if (op.kind == FloatOp::Kind::kLog1p) kernels_->log1p(floats, count);
    else kernels_->clip(floats, count, op.lo, op.hi);
  }
  if (!program.boundaries.empty()) {
    // Buckets are twice as wide as the floats they replace: from the last block to the first, no float is overwritten
    // before it was read.
    constexpr std::size_t kBlock = 256;
    float block[kBlock];
    for (std::size_t end = count; end > 0;) {
      const std::size_t begin = (end - 1) / kBlock * kBlock;
      std::memcpy(block, values + begin * sizeof(float), (end - begin) * sizeof(float));
      kernels_->bucketize(block, end - begin, program.boundaries.data(), program.boundaries.size(),
                          reinterpret_cast<std::int64_t*>(values) + begin);
      end = begin;
    }
  }
  for (const CrossOp& op : program.crosses) cross(op, tile, reinterpret_cast<std::int64_t*>(values));
}

void Extractor::cross(const CrossOp& op, const Tile& tile, std::int64_t* ids) const noexcept {
  std::int64_t others[kTileRows];
  load({op.feature, {}, 0}, tile, reinterpret_cast<char*>(others), nullptr);
  for (std::size_t i = 0; i < tile.n; ++i) {
    ids[i] = static_cast<std::int64_t>(
        xxh64_pair(static_cast<std::uint64_t>(ids[i]), static_cast<std::uint64_t>(others[i]), op.seed));
  }
}

void Extractor::count(const Tile& tile, GatherStats& stats) const noexcept {
  const auto unknown = static_cast<std::uint32_t>(cache_->rows());
  std::uint64_t known = 0;
  for (std::size_t i = 0; i < tile.n; ++i) known += tile.rows[i] != unknown;
  for (const std::uint32_t f : used_) {
    stats.cells += tile.n;
    if (tile.given(f) || is_key_[f]) {
      stats.cells_present += tile.n;
    } else if (stored_[f].all_present) {
      stats.cells_present += known;
    } else {
      for (std::size_t i = 0; i < tile.n; ++i) stats.cells_present += stored_[f].present(tile.rows[i]);
    }
  }
}

}  // namespace feature_store
