// How many lookups are being answered, and a wait for the moment when none is.
//
// Thread-safety: all methods.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace paramserver::flight {

class InFlight {
 public:
  // Counts one lookup for as long as it lives.
  class Entry {
   public:
    explicit Entry(InFlight& owner) : owner_(owner) { owner_.change(1); }
    ~Entry() { owner_.change(-1); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    InFlight& owner_;
  };

  std::int64_t count() const {
    const std::lock_guard lock(mutex_);
    return count_;
  }

  // False when lookups were still in flight at `until`.
  bool wait_for_none(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    return none_.wait_until(lock, until, [&] { return count_ == 0; });
  }

 private:
  void change(int by) {
    const std::lock_guard lock(mutex_);
    count_ += by;
    if (count_ == 0) none_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable none_;
  std::int64_t count_ = 0;
};

}  // namespace paramserver::flight
