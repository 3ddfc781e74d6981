// A cache of hot rows in front of another RowSource, such as a remote table: beside the service, keyed by (epoch, id).
//
// A row of one epoch never changes, so nothing has to be invalidated: a new epoch has keys of its own, and rows of
// older ones are the first to go. Only rows that were answered from data (`hit`, `cold`) are kept, as `hit`; `default`
// ones for default_age_max_ms if that is not 0. A source without epochs (epoch() == 0) may change at any time and is
// passed through, as are calls that are late or cancelled on entry.
//
// Memory is sets of 8 ways, all allocated at once; eviction within a set is CLOCK with counters of 0 to 3, and a row
// enters with 0, so that one scan does not push out what is asked for again and again.
//
//   Set, 64 bytes:   | tag of way 0..7, u32 each; 0: free | used count of way 0..7, u8 each | hand u32 | unused |
//   Way:             | seq u32 | status u8 | pad | epoch u64 | id i64 | expires_ns i64 | row, padded to 8 |
//
// Thread-safety: every method from any thread. A way is read under a sequence number (odd: being written) and copied
// out word by word, so readers wait for nobody; a reader or writer that meets a writer takes the way as a miss.
// Ownership: keeps the inner source alive.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/memory.h"
#include "paramserver/csrc/row_source.h"

namespace paramserver {

struct HotCacheOptions {
  std::uint64_t bytes_max = std::uint64_t{64} << 20;  // all of its memory; at least one set is made
  RowType kept = RowType::kF32;           // how rows are kept: kF16 halves them, exactly if the source's rows are f16
  std::int64_t row_age_max_ms = 0;        // rows older than this are asked for again (tables with a TTL); 0: never
  std::int64_t default_age_max_ms = 0;    // how long an unknown id is remembered as such; 0: not at all
  bool huge_pages = true;                 // ask the kernel for 2 MiB pages
  const Kernels* kernels = nullptr;       // null: the process's choice
};

struct HotCacheStats {
  std::uint64_t hits = 0;      // ids answered from here
  std::uint64_t misses = 0;    // ids asked from the source
  std::uint64_t bypassed = 0;  // ids passed through: no epoch, late or cancelled
  std::uint64_t inserted = 0;
  std::uint64_t evicted = 0;   // rows pushed out by others
  std::uint64_t contended = 0; // rows not kept because another thread was writing the way
  std::uint64_t rows_max = 0;  // ways
  std::uint64_t bytes = 0;     // memory set aside, touched as it fills
};

class HotRowCache final : public RowSource, public std::enable_shared_from_this<HotRowCache> {
 public:
  // Throws OptionError, MemoryExhausted.
  HotRowCache(std::shared_ptr<const RowSource> source, const HotCacheOptions& options);

  std::uint32_t dim() const noexcept override { return dim_; }
  std::uint64_t epoch() const noexcept override { return source_->epoch(); }

  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
              RowStatus* status) const noexcept override;
  void lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                     std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                     RowStatus* status) const noexcept override;

  HotCacheStats stats() const noexcept;

 private:
  static constexpr std::size_t kWays = 8;
  struct Set;
  struct Way;
  struct Key {
    std::uint64_t epoch;
    std::int64_t id;
    std::uint64_t set;
    std::uint32_t tag;
  };
  struct Batch;  // the ids of one stretch of a call, and its scratch memory

  Key key_of(std::uint64_t epoch, std::int64_t id) const noexcept;
  Set& set_at(std::uint64_t set) const noexcept;
  Way& way_at(std::uint64_t set, std::size_t way) const noexcept;
  // The epoch to read at, or 0 when the call must be passed through.
  std::uint64_t epoch_for(const LookupContext& context) const noexcept;
  bool find(const Key& key, std::int64_t now_ns, std::byte* row, RowStatus* status) const noexcept;
  void keep(const Key& key, std::int64_t now_ns, const std::byte* row, RowStatus status) const noexcept;
  Way* claim(const Key& key) const noexcept;
  std::size_t victim(Set& set, const Key& key) const noexcept;
  std::int64_t expiry(RowStatus status, std::int64_t now_ns) const noexcept;
  void fetch(const LookupContext& at_epoch, Batch& batch) const;

  const std::shared_ptr<const RowSource> source_;
  const HotCacheOptions options_;
  const Kernels& kernels_;
  const std::uint32_t dim_;
  const std::size_t row_bytes_;  // as kept, without padding
  const std::size_t way_bytes_;
  const std::uint64_t sets_;
  const Region region_;
  mutable std::atomic<std::uint64_t> newest_{0};
  struct Counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, bypassed{0}, inserted{0}, evicted{0}, contended{0};
  };
  mutable Counters counters_;
};

}  // namespace paramserver
