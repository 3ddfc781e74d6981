// A table that lives on the shards of a cluster, read as if it were in this process.
//
// A lookup takes one View (map and newest epoch), cuts its ids by shard, each id once, asks all shards at once, and
// then converts rows from the wire's type straight into `out`, in the order of the ids; pooling runs here, over the
// rows as they came, in the order of the ids, so a bag has the bits that a table in this process gives (when the wire's
// type holds the rows exactly).
//
// Epoch 0 is the newest that the cluster's directory names, for all ids of the call; without any epoch every id is
// `unavailable`. A call without a deadline gets deadline_ms. When a shard says that the map is another, the map is read
// again and the whole call made once more, until both agree or map_wait_ms or three quarters of the time are over: then
// the ids of that shard are `unavailable`.
//
// Thread-safety: every method from any thread. Ownership: keeps the cluster alive.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paramserver/csrc/flight/client_cluster.h"
#include "paramserver/csrc/flight/client_router.h"
#include "paramserver/csrc/kernels.h"
#include "paramserver/csrc/row_source.h"

namespace paramserver::flight {

struct RemoteTableOptions {
  std::string name;                    // 1 to 255 bytes
  std::uint32_t dim = 0;               // numbers in a row, 1 .. kDimMax
  WireType wire = WireType::kF32;      // what the shards send
  const float* default_row = nullptr;  // [dim], copied: the row of ids that could not be asked; null: zeros
  std::uint32_t deadline_ms = 1000;    // of calls that bring none
  double hedge_ms = -1;                // as Pace
  CallOptions call;
};

struct RemoteTableStats {
  std::uint64_t lookups = 0;
  std::uint64_t ids = 0;
  std::uint64_t unique_ids = 0;  // sent to shards
  std::array<std::uint64_t, kRowStatuses> by_status{};
  std::uint64_t messages = 0;
  std::uint64_t hedges = 0;
  std::uint64_t failovers = 0;
  std::uint64_t mismatches = 0;
  std::array<std::uint64_t, kAnswerCodes> refusals{};
};

class RemoteTable final : public RowSource, public std::enable_shared_from_this<RemoteTable> {
 public:
  // Throws OptionError.
  RemoteTable(std::shared_ptr<Cluster> cluster, const RemoteTableOptions& options);
  ~RemoteTable() override;

  std::uint32_t dim() const noexcept override { return dim_; }
  std::uint64_t epoch() const noexcept override { return cluster_->view()->newest_epoch; }

  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType out_type, void* out,
              RowStatus* status) const noexcept override;
  void lookup_pooled(const LookupContext& context, const std::int64_t* ids, const std::int32_t* offsets,
                     std::size_t bags, Pooling mode, const float* weights, RowType out_type, void* out,
                     RowStatus* status) const noexcept override;

  RemoteTableStats stats() const noexcept;

 private:
  struct Scratch;

  // `take(rows, first, n)` gets pointers to the rows of ids [first, first + n), in the wire's type.
  template <class Take>
  void resolve(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowStatus* status,
               Take&& take) const noexcept;
  void ask(Question& question, const std::int64_t* ids, std::size_t n, Scratch& scratch) const;
  void spread(Scratch& scratch) const;
  std::unique_ptr<Scratch> borrow() const;
  void give_back(std::unique_ptr<Scratch> scratch) const noexcept;

  const std::shared_ptr<Cluster> cluster_;
  const std::shared_ptr<const void> use_;
  const Kernels& kernels_;
  const std::string name_;
  const std::uint32_t dim_;
  const WireType wire_;
  const std::size_t row_bytes_;
  const std::int64_t deadline_ns_;
  const CallOptions call_;
  std::vector<std::byte> default_row_;  // in the wire's type

  mutable Pace pace_;
  mutable CallCounters counters_;
  mutable std::atomic<std::uint64_t> lookups_{0};
  mutable std::atomic<std::uint64_t> ids_{0};
  mutable std::atomic<std::uint64_t> unique_{0};
  mutable std::array<std::atomic<std::uint64_t>, kRowStatuses> by_status_{};
  mutable std::mutex scratch_mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> scratch_;
};

}  // namespace paramserver::flight
