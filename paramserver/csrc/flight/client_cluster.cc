#include "paramserver/csrc/flight/client_cluster.h"

#include <chrono>
#include <utility>

#include "paramserver/csrc/clock.h"

namespace paramserver::flight {
namespace {

constexpr std::chrono::milliseconds kTick{50};

}  // namespace

Cluster::Cluster(LaneOptions options) : options_(std::move(options)), keeper_([this] { keep(); }) {}

Cluster::~Cluster() { close(); }

void Cluster::set_map(std::uint64_t version, const std::vector<std::vector<std::string>>& addresses) {
  const std::lock_guard lock(mutex_);
  if (closing_) return;
  auto view = std::make_shared<View>();
  view->map_version = version;
  view->newest_epoch = view_->newest_epoch;
  std::map<std::string, std::shared_ptr<Lane>> named;
  for (const auto& replicas : addresses) {
    auto& lanes = view->shards.emplace_back();
    for (const std::string& address : replicas) {
      std::shared_ptr<Lane>& lane = named[address];
      const auto known = lanes_.find(address);
      if (lane == nullptr) lane = known != lanes_.end() ? known->second : std::make_shared<Lane>(address, options_);
      lanes.push_back(lane);
    }
  }
  for (const auto& [address, lane] : lanes_) {
    if (!named.contains(address)) retired_.push_back(lane);
  }
  lanes_ = std::move(named);
  view_ = std::move(view);
  changed_.notify_all();
}

void Cluster::set_newest_epoch(std::uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  auto view = std::make_shared<View>(*view_);
  view->newest_epoch = epoch;
  view_ = std::move(view);
}

std::shared_ptr<const View> Cluster::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

std::shared_ptr<const View> Cluster::view_after(std::uint64_t version, std::int64_t until_ns) {
  std::unique_lock lock(mutex_);
  doubt_ = true;
  changed_.notify_all();
  const auto until = std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until_ns));
  changed_.wait_until(lock, until, [&] { return closing_ || view_->map_version != version; });
  return view_;
}

bool Cluster::wait_for_doubt(std::uint32_t timeout_ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return doubt_ || closing_; });
  return std::exchange(doubt_, false);
}

void Cluster::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  std::call_once(joined_, [this] {
    keeper_.join();
    for (const auto& [address, lane] : lanes_) lane->stop();
    for (const auto& lane : retired_) lane->stop();
  });
}

std::vector<std::pair<std::string, LaneStats>> Cluster::lanes() const {
  std::vector<std::pair<std::string, LaneStats>> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [address, lane] : lanes_) all.emplace_back(address, lane->stats());
  return all;
}

void Cluster::keep() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    const std::map<std::string, std::shared_ptr<Lane>> lanes = lanes_;
    std::vector<std::shared_ptr<Lane>> idle;
    for (auto& lane : retired_) {
      // Only this vector knows it any more: no view names it, and no lookup can come to it.
      if (lane.use_count() == 1) idle.push_back(std::move(lane));
    }
    std::erase(retired_, nullptr);
    lock.unlock();
    for (const auto& lane : idle) lane->stop();
    for (const auto& [address, lane] : lanes) lane->tick(monotonic_ns());
    idle.clear();
    lock.lock();
    changed_.wait_for(lock, kTick, [this] { return closing_; });
  }
}

}  // namespace paramserver::flight
