// One stream of lookups to one replica, with many in flight.
//
//   caller --send--> queue --writer thread--> DoExchange stream --reader thread--> the Try that the answer names
//
// A caller never connects, writes or reads: it puts its message into a bounded queue and waits on its own mailbox. When
// the stream breaks, everything in flight fails at once, and the writer thread opens it again with a growing pause.
// An answer whose number nobody waits for any more is dropped and counted.
//
//   kOpening --heard--> kUp --suspect()--> kSuspect --heard--> kUp
//      |  \----------------broken------------/   kSuspect for stall_ms: the stream is given up
//      `--failed--> kDown --heard--> kUp         kOpening: for the first time, or again after having been up
//
// Thread-safety: every method from any thread. Ownership: a Lane owns its threads; stop() and the destructor wait for
// them, a connection attempt included (connect_ms).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>

#include "paramserver/csrc/flight/client_try.h"

namespace arrow {
class Status;
}

namespace paramserver::flight {

struct LaneOptions {
  std::string token;                              // sent as a bearer token; empty: none
  std::string tls_root_certs;                     // PEM; empty: the system's
  std::string tls_override_hostname;              // for tests with certificates of other names; empty: none
  std::uint32_t lookups_max = 1024;               // in flight or queued on a lane; more are refused
  std::uint64_t bytes_max = std::uint64_t{256} << 20;  // of ids and expected rows of those
  std::uint32_t connect_ms = 1000;                // the longest that a connection may take
  std::uint32_t retry_ms = 500;                   // the longest pause before the next connection
  std::uint32_t stall_ms = 2000;                  // how long a suspect stream is kept before it is opened anew
  std::uint32_t quiet_ms = 1000;                  // silence after which a lane is asked whether it lives
};

enum class LaneState : std::uint8_t { kOpening = 0, kUp = 1, kSuspect = 2, kDown = 3 };

struct LaneStats {
  LaneState state = LaneState::kOpening;
  std::uint32_t in_flight = 0;
  std::uint64_t sent = 0;     // lookups
  std::uint64_t late = 0;     // messages that nobody waited for
  std::uint64_t bad = 0;      // messages that are no answers
  std::uint64_t opened = 0;   // streams that answered
  std::uint64_t broken = 0;   // streams that broke
  std::string problem;        // of the last stream that broke or did not open
};

class Lane {
 public:
  Lane(std::string address, LaneOptions options);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& address() const noexcept { return address_; }
  LaneState state() const noexcept { return state_.load(std::memory_order_acquire); }
  std::uint32_t in_flight() const noexcept { return in_flight_.load(std::memory_order_relaxed); }

  // Queues a message and gives it its number. False when the lane has no stream or is full. Throws std::bad_alloc.
  bool send(const std::shared_ptr<Try>& lookup);
  // Nothing more is wanted for this Try.
  void forget(const Try& lookup) noexcept;
  // The replica has been silent for too long: others go first until it is heard of.
  void suspect() noexcept;
  // Called regularly: asks quiet lanes for a sign of life and gives up streams that stalled.
  void tick(std::int64_t now_ns);
  // Ends the stream and the threads; lookups in flight fail.
  void stop() noexcept;

  LaneStats stats() const;

 private:
  struct Stream;

  // The writer thread.
  void run();
  arrow::Status open(Stream& stream);
  void write_until_broken(Stream& stream);
  arrow::Status write(Stream& stream, const Try& lookup);
  std::shared_ptr<Try> next(const Stream& stream);
  void end(Stream& stream);
  bool pause(std::uint32_t pause_ms);

  // The reader thread of one stream.
  void read(Stream& stream);
  void take(std::variant<Chunk, BadAnswer> message);
  void heard() noexcept;

  void fail_all(const std::string& reason);
  void break_stream(Stream& stream, const std::string& reason);
  void ask_for_a_sign();

  const std::string address_;
  const LaneOptions options_;
  std::atomic<LaneState> state_{LaneState::kOpening};
  std::atomic<std::uint32_t> in_flight_{0};
  std::atomic<std::int64_t> heard_ns_{0};
  std::atomic<std::int64_t> suspect_ns_{0};  // since when; 0: not
  std::atomic<std::int64_t> opening_ns_{0};  // since when a stream has not answered; 0: it has, or there is none

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::deque<std::uint64_t> queue_;  // numbers, some perhaps of what is forgotten: those hold no ids
  std::unordered_map<std::uint64_t, std::shared_ptr<Try>> waiting_;
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t last_number_ = 0;
  std::uint64_t sign_ = 0;      // the number of the last lookup that asked for a sign of life
  Try last_;                    // what was last asked, without ids: what a sign of life asks for
  Stream* stream_ = nullptr;    // the one that is open
  bool stopping_ = false;
  LaneStats counted_;
  std::once_flag joined_;
  std::thread thread_;
};

}  // namespace paramserver::flight
