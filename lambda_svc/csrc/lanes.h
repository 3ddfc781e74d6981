// What an executable's runs take turns on: k lanes, each used by one run at a time.
//
// Thread-safety: take() may be called from several threads at once, add() and clear() only before and after all that.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace lambda_svc {

template <class T>
class Lanes {
 public:
  // A lane, and the right to use it for as long as this lives.
  struct Taken {
    T& lane;
    std::unique_lock<std::mutex> lock;
  };

  T& add() {
    all_.push_back(std::make_unique<Slot>());
    return all_.back()->lane;
  }
  void clear() { all_.clear(); }
  std::size_t size() const { return all_.size(); }
  // Not taken: for what does not change while runs go on, or by whoever knows that none does.
  T& at(std::size_t index) const { return all_[index]->lane; }

  // A free lane; when all are taken, waits for one of them.
  Taken take() const {
    for (const auto& slot : all_) {
      std::unique_lock lock(slot->mutex, std::try_to_lock);
      if (lock.owns_lock()) return {slot->lane, std::move(lock)};
    }
    return take(next_.fetch_add(1, std::memory_order_relaxed) % all_.size());
  }

  // This one.
  Taken take(std::size_t index) const {
    return {all_[index]->lane, std::unique_lock(all_[index]->mutex)};
  }

 private:
  struct Slot {
    std::mutex mutex;
    T lane;
  };
  std::vector<std::unique_ptr<Slot>> all_;
  mutable std::atomic<std::size_t> next_{0};  // the lane to wait for when all are taken
};

}  // namespace lambda_svc
