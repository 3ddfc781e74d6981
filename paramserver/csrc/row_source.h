// The contract between the parameter server and whoever reads rows: an in-process table, a tiered table, a mapped
// table or a remote client, all behind one abstract class that crosses package borders in a capsule.
//
// Thread-safety: every method may be called from any number of threads at once, beside writers. A reader never sees
// half a row.
// Ownership: the capsule named kRowSourceCapsule holds a `std::shared_ptr<const RowSource>*`; whoever unwraps it
// copies the shared_ptr and so keeps the table alive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace paramserver {

// What became of one id. The numbers are part of the wire and of the request log: never renumber.
enum class RowStatus : std::uint8_t {
  kHit = 0,          // answered from RAM
  kCold = 1,         // answered from the cold tier
  kDefault = 2,      // unknown id: the table's default row
  kFiltered = 3,     // known but not admitted yet: the default row
  kUnavailable = 4,  // could not be asked: the default row, and it is not a miss
  kDeadline = 5,     // not read in time: the default row
};
inline constexpr std::size_t kRowStatuses = 6;

// Element type of the rows a caller receives, whatever the table stores.
enum class RowType : std::uint8_t { kF32 = 0, kF16 = 1, kBF16 = 2 };

enum class Pooling : std::uint8_t { kSum = 0, kMean = 1, kSqrtN = 2 };

struct LookupContext {
  std::uint64_t epoch = 0;                                             // 0: the newest published state
  std::int64_t deadline_ns = std::numeric_limits<std::int64_t>::max();  // CLOCK_MONOTONIC
  const std::atomic<bool>* cancelled = nullptr;                         // null: cannot be cancelled
  // The cold rows that this call may read at most, beside its table's own bound; the call takes off what it read, so
  // that a request made of several calls has one bound. Null: the table's bound alone.
  std::uint64_t* cold_reads_left = nullptr;
};

class RowSource {
 public:
  virtual ~RowSource() = default;

  virtual std::uint32_t dim() const noexcept = 0;

  // The newest published epoch, 0 for a source that has one state. Whoever asks several sources for one request takes
  // it once and passes it on in LookupContext::epoch, so that all answers are of one state.
  virtual std::uint64_t epoch() const noexcept { return 0; }

  // Writes row i of `out` for ids[i]. Operating trouble is reported in `status`, never thrown: the row is then the
  // default row.
  virtual void lookup(const LookupContext& context, const std::int64_t* ids /*[n]*/, std::size_t n, RowType out_type,
                      void* out /*[n, dim]*/, RowStatus* status /*[n] or null*/) const noexcept = 0;

  // Bag b pools ids[offsets[b] .. offsets[b + 1]). An empty bag pools to exactly 0; an id that is not a hit pools the
  // default row. The sum runs in float32 and in the order of the ids. Weights multiply rows; mean divides by the sum
  // of weights, sqrtn by the root of the sum of their squares (without weights: by n and by the root of n).
  virtual void lookup_pooled(const LookupContext& context, const std::int64_t* ids /*[offsets[bags]]*/,
                             const std::int32_t* offsets /*[bags + 1]*/, std::size_t bags, Pooling mode,
                             const float* weights /*[offsets[bags]] or null*/, RowType out_type,
                             void* out /*[bags, dim]*/,
                             RowStatus* status /*[offsets[bags]] or null*/) const noexcept = 0;
};

inline constexpr const char* kRowSourceCapsule = "paramserver.RowSource.3";

}  // namespace paramserver
