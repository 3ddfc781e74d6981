// The compiled form of one side's slots: a FeatureSource that gathers, transforms and lays out in one pass.
//
// Every chain of transforms that type-checks has the same shape, so a slot is a small fixed program:
//
//   load (cuts, hash) -> float operations -> bucketize -> crosses -> pad
//
// Each step loops over a tile of rows, in place in the caller's memory; nothing is allocated. Values of a tile are
// first packed end to end and only spread to padded rows at the end, so pad cells are never transformed.
//
// Thread-safety: gather() from any thread; floating point is set to the default modes meanwhile, so that a caller
// thread that flushes denormals gets the same bytes. Ownership: shares the cache.
#pragma once

#include <memory>
#include <vector>

#include "feature_store/csrc/cache.h"
#include "feature_store/csrc/feature_source.h"
#include "feature_store/csrc/isa.h"
#include "feature_store/csrc/kernels.h"

namespace feature_store {

// Keeps at most `length` values of each row.
struct Cut {
  std::uint32_t length;
  bool keep_last;
};

struct FloatOp {
  enum class Kind : std::uint8_t { kLog1p = 0, kClip = 1 } kind;
  float lo, hi;  // kClip only
};

// value = xxh64_pair(value, the other feature's id, seed).
struct CrossOp {
  std::uint32_t feature;
  std::uint64_t seed;
};

struct Load {
  std::uint32_t feature = 0;
  std::vector<Cut> cuts;            // ragged features only
  std::uint64_t hash_seed = 0;      // bytes features are always hashed
};

struct SlotProgram {
  SlotSpec spec;
  Load load;
  std::vector<FloatOp> float_ops;   // f32 features only
  std::vector<float> boundaries;    // not empty: bucketize
  std::vector<CrossOp> crosses;     // dense i64 of width 1 only
  float pad_f32 = 0;                // padded slots: by spec.dtype
  std::int64_t pad_i64 = 0;
};

inline constexpr std::int32_t kKeyColumn = -2;

class Extractor final : public FeatureSource {
 public:
  // cache_columns[f] is the column of features[f] in the cache, kKeyColumn when the feature is the key itself, or -1
  // for a feature that no slot reads.
  // Throws ProgrammerError when the parts do not fit together.
  Extractor(std::vector<FeatureSpec> features, std::vector<SlotProgram> programs, std::shared_ptr<const Cache> cache,
            std::vector<std::int32_t> cache_columns, Isa isa);

  const std::vector<SlotSpec>& slots() const noexcept override { return slots_; }
  const std::vector<FeatureSpec>& features() const noexcept override { return features_; }

  // Ragged outs need room for n * width values, width * n below 2**31.
  void gather(const std::int64_t* keys, std::size_t n, const ColumnView* columns, const SlotOut* outs,
              std::uint8_t* known, GatherStats* stats) const noexcept override;

  // Throws ProgrammerError unless an out of these many bytes has room for n rows of slot i.
  void require_room(std::size_t i, std::size_t n, std::size_t value_bytes, std::size_t offsets,
                    std::size_t lengths) const;

 private:
  struct Tile;

  void check(const SlotProgram& program) const;
  void run_slot(const SlotProgram& program, const Tile& tile, const SlotOut& out) const noexcept;
  std::size_t load(const Load& step, const Tile& tile, char* to, std::int32_t* lengths) const noexcept;
  void transform(const SlotProgram& program, const Tile& tile, std::size_t count, char* values) const noexcept;
  void cross(const CrossOp& op, const Tile& tile, std::int64_t* ids) const noexcept;
  void count(const Tile& tile, GatherStats& stats) const noexcept;

  std::vector<FeatureSpec> features_;
  std::vector<SlotProgram> programs_;
  std::vector<SlotSpec> slots_;
  std::shared_ptr<const Cache> cache_;
  std::vector<StoredColumn> stored_;     // by feature
  std::vector<std::uint8_t> is_key_;     // by feature
  std::vector<std::uint32_t> used_;      // the features that slots read
  const Kernels* kernels_;
};

}  // namespace feature_store
