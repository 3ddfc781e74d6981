// Feeds over memory that belongs to someone who cannot be told later: waits until the engine has let go of all.
//
// Thread-safety: acquire and release may come from any thread; wait() belongs to the owner.
#pragma once

#include <condition_variable>
#include <mutex>

#include "lambda_svc/csrc/executable.h"

namespace lambda_svc {

class BorrowedFeeds {
 public:
  BorrowedFeeds() = default;
  BorrowedFeeds(const BorrowedFeeds&) = delete;
  ~BorrowedFeeds() {
    std::unique_lock lock(mutex_);
    gone_.wait(lock, [this] { return held_ == 0; });
  }

  FeedRelease release() {
    return {[](void* self) { static_cast<BorrowedFeeds*>(self)->add(1); },
            [](void* self) { static_cast<BorrowedFeeds*>(self)->add(-1); }, this};
  }

 private:
  void add(int feeds) {
    // Notified under the lock: the owner may destroy this object as soon as it sees zero.
    const std::lock_guard lock(mutex_);
    held_ += feeds;
    gone_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable gone_;
  int held_ = 0;
};

}  // namespace lambda_svc
