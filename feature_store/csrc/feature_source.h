// The contract between the feature store and whoever needs features: for one side of a request (user, context or
// item) it writes every slot for a batch of keys, transforms included, straight into memory the caller owns.
//
// Thread-safety: gather() may be called from any number of threads at once.
// Ownership: the capsule named kFeatureSourceCapsule holds a `std::shared_ptr<const FeatureSource>*`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace feature_store {

// Numbers are part of the wire (ranking.proto) and of the package manifest: never renumber.
enum class DType : std::uint8_t { kF32 = 1, kI64 = 2, kBytes = 3, kI32 = 4 };

enum class Layout : std::uint8_t {
  kDense = 0,   // values [n, width]
  kRagged = 1,  // values [offsets[n]], offsets [n + 1]; at most `width` values a row
  kPadded = 2,  // values [n, width], lengths [n]; cells past the length hold the pad value
};

// What one slot's output looks like; fixed when the source is compiled, so that memory can be laid out per plan.
struct SlotSpec {
  std::string name;
  DType dtype;  // kF32 or kI64
  Layout layout;
  std::uint32_t width;
};

// A raw feature that a request may bring along instead of the stored one.
struct FeatureSpec {
  std::string name;
  DType dtype;           // kF32, kI64 or kBytes
  Layout layout;         // as it travels: kDense or kRagged (a sequence travels ragged)
  std::uint32_t width;   // dense: values a row; ragged: the most values a row may have
};

// A request's own column for one feature, already checked against its FeatureSpec. Numeric values may be unaligned.
struct ColumnView {
  bool given = false;
  const void* values = nullptr;                 // f32, i64, or the bytes of all values end to end
  const std::int32_t* row_offsets = nullptr;    // ragged: [n + 1] into values
  const std::int32_t* byte_offsets = nullptr;   // bytes: [values + 1] into the byte buffer
};

struct SlotOut {
  void* values = nullptr;
  std::int32_t* offsets = nullptr;  // ragged only: [n + 1]
  std::int32_t* lengths = nullptr;  // padded only: [n]
};

// What coverage is computed from: a cell is one feature of one key; present means stored or brought by the request.
struct GatherStats {
  std::uint64_t cells = 0;
  std::uint64_t cells_present = 0;
};

class FeatureSource {
 public:
  virtual ~FeatureSource() = default;

  virtual const std::vector<SlotSpec>& slots() const noexcept = 0;
  virtual const std::vector<FeatureSpec>& features() const noexcept = 0;  // the order of `columns` below

  // `known[i]` says whether keys[i] is in the cache; an unknown key gets every feature's default. A column given by
  // the request overrides what is stored, for all n keys.
  virtual void gather(const std::int64_t* keys /*[n]*/, std::size_t n, const ColumnView* columns /*[features]*/,
                      const SlotOut* outs /*[slots]*/, std::uint8_t* known /*[n] or null*/,
                      GatherStats* stats /*or null*/) const noexcept = 0;
};

inline constexpr const char* kFeatureSourceCapsule = "feature_store.FeatureSource.1";

}  // namespace feature_store
