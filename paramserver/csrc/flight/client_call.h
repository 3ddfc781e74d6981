// One lookup over all shards: sends a message per shard, waits, goes to another replica where one fails or falls
// silent, and ends when every shard is settled, the deadline has passed or the caller cancelled.
//
// A part of the call (one shard) is settled
//   answered        by the first replica that sent all rows, none of them unavailable to itself;
//   kDeadline       when time is over; rows that came by then count;
//   kUnavailable    when no replica can be reached, or all that can refuse in a way that waiting does not heal; the
//                   answer with the most rows counts.
// A replica of one shard answers for the epoch asked or not at all, so a part may go to any of them. They are asked in
// rounds: each once, then after a growing pause again those that refused in a way that waiting may heal.
//
// Thread-safety: a call belongs to one thread; Counters and Pace are shared.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "paramserver/csrc/flight/client_lane.h"
#include "paramserver/csrc/flight/client_pace.h"
#include "paramserver/csrc/row_source.h"

namespace paramserver::flight {

// What a client knows of its cluster at one moment. Immutable.
struct View {
  std::uint64_t map_version = 0;
  std::vector<std::vector<std::shared_ptr<Lane>>> shards;  // [shard][replica]
  std::uint64_t newest_epoch = 0;                          // 0: none published
};

struct CallOptions {
  std::uint32_t stall_ms = 100;       // silence after which a replica is suspect and another is asked; less, down to
                                      // what is usual, when a call has less than four times as long
  std::uint32_t map_wait_ms = 1000;   // how long client and shards may differ about the map before ids are unavailable
  std::uint32_t epoch_wait_ms = 500;  // how long an epoch that no replica serves yet is waited for
};

struct CallCounters {
  std::atomic<std::uint64_t> messages{0};
  std::atomic<std::uint64_t> hedges{0};      // sent again after a silence that is longer than usual
  std::atomic<std::uint64_t> failovers{0};   // sent again because a replica failed, refused or stalled
  std::atomic<std::uint64_t> mismatches{0};  // answers that the shard map is another
  std::array<std::atomic<std::uint64_t>, kAnswerCodes> refusals{};
};

struct Question {
  std::shared_ptr<const View> view;
  std::string table;
  WireType wire = WireType::kF32;
  std::uint32_t dim = 0;
  std::uint64_t epoch = 0;
  std::int64_t deadline_ns = 0;
  const std::atomic<bool>* cancelled = nullptr;
  CallOptions options;
  bool last_try = false;  // of a shard whose map is another, ids are unavailable, and the other shards' answers count
};

struct PartAnswer {
  std::shared_ptr<const Try> got;                 // null: nothing came
  std::uint32_t rows = 0;                         // of got, in the order of the shard's ids
  RowStatus rest = RowStatus::kUnavailable;       // of ids past those
};

// False when the replicas of a shard say that the map is another, and it is not the last try: nothing of the answer is
// then of use. Throws std::bad_alloc.
bool ask_shards(const Question& question, const std::vector<ShardIds>& ids, Pace& pace, CallCounters& counters,
                std::vector<PartAnswer>* answers);

}  // namespace paramserver::flight
