// What a shard serves: its place in the shard map, and for each epoch the tables that answer for it.
//
// Thread-safety: all methods may be called by any thread. Lookups copy one shared_ptr under a mutex that nobody holds
// longer than that; publishing builds the new epoch first and puts it in place at once, so an epoch is served with all
// its tables or not at all.
// Ownership: an epoch keeps its tables alive while a lookup uses it, also after it was retired.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paramserver/csrc/flight/shard_counters.h"
#include "paramserver/csrc/row_source.h"

namespace paramserver::flight {

struct Place {
  std::uint64_t map_version = 0;
  std::uint32_t shard = 0;
  std::uint32_t shards = 1;
  bool operator==(const Place&) const = default;
};

struct ServedTable {
  std::string name;
  std::shared_ptr<const RowSource> source;
  bool blocking = false;                      // a lookup may wait for a disk
  std::shared_ptr<TableCounters> counters;    // set by ShardState
};

struct ServedEpoch {
  std::map<std::string, ServedTable, std::less<>> tables;
};

class ShardState {
 public:
  explicit ShardState(Place place) : place_(place) {}

  Place place() const;
  void set_place(Place place);

  // Serves an epoch; publishing it again replaces its tables.
  void publish(std::uint64_t epoch, std::vector<ServedTable> tables);
  // Returns whether the epoch was served.
  bool retire(std::uint64_t epoch);

  std::uint64_t newest() const;  // 0 without one
  std::vector<std::uint64_t> epochs() const;

  // Null for an epoch that is not served.
  std::shared_ptr<const ServedEpoch> find(std::uint64_t epoch) const;
  // As find, but an epoch newer than all served is waited for until `until`.
  std::shared_ptr<const ServedEpoch> wait(std::uint64_t epoch, std::chrono::steady_clock::time_point until) const;

  std::map<std::string, std::shared_ptr<const TableCounters>> counters() const;

 private:
  std::shared_ptr<const ServedEpoch> find_locked(std::uint64_t epoch) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable published_;
  Place place_;
  std::map<std::uint64_t, std::shared_ptr<const ServedEpoch>> epochs_;
  std::map<std::string, std::shared_ptr<TableCounters>> counters_;
};

}  // namespace paramserver::flight
