// The shards of one cluster as a client sees them: the lanes to every replica, and an immutable View that lookups take.
//
// Whoever watches the cluster's directory (paramserver/remote.py) calls set_map and set_newest_epoch; lookups never
// read a file, and never wait for one. A keeper thread looks after the lanes and closes those that no map names any
// more.
//
// Thread-safety: every method from any thread. Ownership: remote tables keep their cluster alive; the destructor stops
// its threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "paramserver/csrc/flight/client_call.h"

namespace paramserver::flight {

class Cluster final : public std::enable_shared_from_this<Cluster> {
 public:
  explicit Cluster(LaneOptions options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  void set_map(std::uint64_t version, const std::vector<std::vector<std::string>>& addresses /*[shard][replica]*/);
  void set_newest_epoch(std::uint64_t epoch);

  std::shared_ptr<const View> view() const;

  // A shard said that the map is another than `version`: asks the watcher to look, and returns the view with another
  // map, or at `until_ns` the one there is.
  std::shared_ptr<const View> view_after(std::uint64_t version, std::int64_t until_ns);
  // Waits for that, `timeout_ms` at most; true when somebody asks for a look.
  bool wait_for_doubt(std::uint32_t timeout_ms);

  // Whoever reads of this cluster holds one.
  std::shared_ptr<const void> use() const noexcept { return use_; }
  bool in_use() const noexcept { return use_.use_count() > 1; }

  // Lookups in flight end at once, later ones too. Waits for the threads.
  void close() noexcept;

  std::vector<std::pair<std::string, LaneStats>> lanes() const;

 private:
  void keep();
  void put(std::shared_ptr<const View> view);

  const LaneOptions options_;
  const std::shared_ptr<const void> use_ = std::make_shared<char>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const View> view_ = std::make_shared<View>();
  std::map<std::string, std::shared_ptr<Lane>> lanes_;
  std::vector<std::shared_ptr<Lane>> retired_;
  bool doubt_ = false;
  bool closing_ = false;
  std::once_flag joined_;
  std::thread keeper_;
};

}  // namespace paramserver::flight
