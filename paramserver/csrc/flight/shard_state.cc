#include "paramserver/csrc/flight/shard_state.h"

#include <utility>

namespace paramserver::flight {

Place ShardState::place() const {
  const std::lock_guard lock(mutex_);
  return place_;
}

void ShardState::set_place(Place place) {
  const std::lock_guard lock(mutex_);
  place_ = place;
}

void ShardState::publish(std::uint64_t epoch, std::vector<ServedTable> tables) {
  auto served = std::make_shared<ServedEpoch>();
  std::shared_ptr<const ServedEpoch> replaced;  // freed after the lock: it may be the last owner of a table
  {
    const std::lock_guard lock(mutex_);
    for (ServedTable& table : tables) {
      auto& counters = counters_[table.name];
      if (counters == nullptr) counters = std::make_shared<TableCounters>();
      table.counters = counters;
      served->tables.insert_or_assign(table.name, std::move(table));
    }
    replaced = std::exchange(epochs_[epoch], std::move(served));
  }
  published_.notify_all();
}

bool ShardState::retire(std::uint64_t epoch) {
  std::shared_ptr<const ServedEpoch> retired;  // freed after the lock: it may be the last owner of a table
  const std::lock_guard lock(mutex_);
  const auto found = epochs_.find(epoch);
  if (found == epochs_.end()) return false;
  retired = std::move(found->second);
  epochs_.erase(found);
  return true;
}

std::uint64_t ShardState::newest() const {
  const std::lock_guard lock(mutex_);
  return epochs_.empty() ? 0 : epochs_.rbegin()->first;
}

std::vector<std::uint64_t> ShardState::epochs() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> numbers;
  numbers.reserve(epochs_.size());
  for (const auto& [number, served] : epochs_) numbers.push_back(number);
  return numbers;
}

std::shared_ptr<const ServedEpoch> ShardState::find(std::uint64_t epoch) const {
  const std::lock_guard lock(mutex_);
  return find_locked(epoch);
}

std::shared_ptr<const ServedEpoch> ShardState::wait(std::uint64_t epoch,
                                                    std::chrono::steady_clock::time_point until) const {
  std::unique_lock lock(mutex_);
  published_.wait_until(lock, until, [&] { return !epochs_.empty() && epochs_.rbegin()->first >= epoch; });
  return find_locked(epoch);
}

std::map<std::string, std::shared_ptr<const TableCounters>> ShardState::counters() const {
  const std::lock_guard lock(mutex_);
  return {counters_.begin(), counters_.end()};
}

std::shared_ptr<const ServedEpoch> ShardState::find_locked(std::uint64_t epoch) const {
  const auto found = epochs_.find(epoch);
  return found == epochs_.end() ? nullptr : found->second;
}

}  // namespace paramserver::flight
