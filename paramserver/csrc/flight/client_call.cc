#include "paramserver/csrc/flight/client_call.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "paramserver/csrc/clock.h"

namespace paramserver::flight {
namespace {

constexpr std::int64_t kMs = 1'000'000;
// How long a cancelled call may go on.
constexpr std::int64_t kCancelNs = kMs;
// How often lanes are looked at while none can be used.
constexpr std::int64_t kNoLaneNs = 2 * kMs;
constexpr std::int64_t kRoundMaxNs = 40 * kMs;

struct Shared {
  const Question& question;
  Pace& pace;
  CallCounters& counters;
  std::shared_ptr<Mailbox> mailbox;
  std::int64_t began_ns;
  std::int64_t stall_ns;
  std::int64_t hedge_ns;
};

void count(std::atomic<std::uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

// What a lane has said to the ids of one shard. From kOtherMap on it is its last word: it need not be asked again.
enum class Said : std::uint8_t {
  kNothing,       // asked, and on its way
  kNotNow,        // full, broken, or a refusal that waiting may heal
  kUnknownEpoch,  // retired, or not there yet
  kOtherMap,
  kPartly,        // an answer in which rows are unavailable
  kNever,         // a refusal that waiting does not heal
};

Said said_by(AnswerCode refusal) {
  switch (refusal) {
    case AnswerCode::kShardMapMismatch:
      return Said::kOtherMap;
    case AnswerCode::kUnknownEpoch:
      return Said::kUnknownEpoch;
    case AnswerCode::kUnknownTable:
    case AnswerCode::kBadRequest:
      return Said::kNever;
    default:
      return Said::kNotNow;
  }
}

// The ids of one shard. All methods under the mailbox's mutex.
class Part {
 public:
  Part(Shared& call, std::uint32_t shard, ShardIds ids)
      : call_(call), lanes_(call.question.view->shards[shard]), shard_(shard), ids_(std::move(ids)),
        settled_(ids_->empty()) {}

  ~Part() { forget_all(); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  bool settled() const { return settled_; }
  bool map_differs() const { return map_differs_; }
  PartAnswer answer() const { return {best_, best_ == nullptr ? 0 : best_->rows, rest_}; }

  void step(std::int64_t now_ns, bool over) {
    collect();
    if (settled_) return;
    if (over) {
      give_up(RowStatus::kDeadline);
    } else if (running_.empty()) {
      start(now_ns);
    } else {
      hurry(now_ns);
    }
  }

  // When to look again if nothing comes.
  std::int64_t wake_ns(std::int64_t now_ns) const {
    const std::int64_t soonest_ns = std::max(round_ns_, now_ns + kNoLaneNs);
    if (running_.empty()) return soonest_ns;
    return std::max(running_.back().lookup->heard_ns + (hedged_ ? call_.stall_ns : call_.hedge_ns), soonest_ns);
  }

 private:
  struct Running {
    std::shared_ptr<Try> lookup;
    Lane* lane;
  };
  struct Asked {
    const Lane* lane;
    Said said;
  };

  void collect() {
    for (std::size_t i = 0; i < running_.size() && !settled_;) {
      const Running one = running_[i];
      if (one.lookup->outcome == Outcome::kWaiting) {
        ++i;
        continue;
      }
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      keep_best(one.lookup);
      if (one.lookup->outcome == Outcome::kAnswered) {
        call_.pace.record(one.lookup->silence_ns);
        settled_ = one.lookup->missing == 0;
        note(one.lane, Said::kPartly);
      } else if (one.lookup->outcome == Outcome::kRefused) {
        const auto code = static_cast<std::size_t>(one.lookup->code);
        count(call_.counters.refusals[std::min(code, kAnswerCodes - 1)]);
        note(one.lane, said_by(one.lookup->code));
      } else {
        note(one.lane, Said::kNotNow);
      }
    }
    if (settled_) forget_all();
  }

  void note(const Lane* lane, Said said) {
    for (Asked& one : asked_) {
      if (one.lane == lane) one.said = said;
    }
  }

  bool says_other_map() const {
    return std::any_of(asked_.begin(), asked_.end(), [](const Asked& one) { return one.said == Said::kOtherMap; });
  }

  // Whether no lane that can be reached would say anything else if it was asked again.
  bool all_said_no(std::int64_t now_ns) const {
    const Question& question = call_.question;
    const bool too_late = question.epoch < question.view->newest_epoch ||
                          now_ns - call_.began_ns > question.options.epoch_wait_ms * kMs;
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const auto& lane) {
      if (lane->state() == LaneState::kDown) return true;
      const auto asked =
          std::find_if(asked_.begin(), asked_.end(), [&](const Asked& one) { return one.lane == lane.get(); });
      if (asked == asked_.end()) return false;
      return asked->said >= Said::kOtherMap || (asked->said == Said::kUnknownEpoch && too_late);
    });
  }

  void start(std::int64_t now_ns) {
    if (now_ns < round_ns_) return;
    if (send(now_ns, true)) {
      if (started_) count(call_.counters.failovers);
      started_ = true;
      return;
    }
    if (says_other_map()) {
      map_differs_ = true;
      if (call_.question.last_try) give_up(RowStatus::kUnavailable);
      return;
    }
    if (all_said_no(now_ns)) return give_up(RowStatus::kUnavailable);
    next_round(now_ns);
  }

  // After a pause lanes are asked again: one may have come back, caught up or caught its breath.
  void next_round(std::int64_t now_ns) {
    std::erase_if(asked_, [](const Asked& one) {
      return one.said == Said::kNotNow || one.said == Said::kUnknownEpoch;
    });
    round_ns_ = now_ns + pause_ns_;
    pause_ns_ = std::min(2 * pause_ns_, kRoundMaxNs);
  }

  // A message is on its way: asks another replica when this one is silent for too long.
  void hurry(std::int64_t now_ns) {
    const Running& last = running_.back();
    const std::int64_t silence = now_ns - last.lookup->heard_ns;
    if (silence >= call_.stall_ns) {
      last.lane->suspect();
      if (now_ns < round_ns_) return;
      if (send(now_ns, true)) {
        count(call_.counters.failovers);
      } else if (says_other_map() && !call_.question.last_try) {
        map_differs_ = true;
      } else {
        next_round(now_ns);
      }
    } else if (!hedged_ && silence >= call_.hedge_ns) {
      hedged_ = true;
      if (has_lane(false) && call_.pace.take_hedge() && send(now_ns, false)) count(call_.counters.hedges);
    }
  }

  bool usable(const Lane& lane, bool suspects_too) const {
    const LaneState state = lane.state();
    return (state == LaneState::kUp || (suspects_too && state == LaneState::kSuspect)) &&
           std::none_of(asked_.begin(), asked_.end(), [&](const Asked& one) { return one.lane == &lane; });
  }

  bool has_lane(bool suspects_too) const {
    return std::any_of(lanes_.begin(), lanes_.end(), [&](const auto& lane) { return usable(*lane, suspects_too); });
  }

  // The best lane not asked in this round: one that is up before a suspect one, then the least busy. Ties go around.
  Lane* choose(bool suspects_too) const {
    static std::atomic<std::uint32_t> turn{0};
    const std::uint32_t first = turn.fetch_add(1, std::memory_order_relaxed);
    Lane* best = nullptr;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      Lane* const lane = lanes_[(first + i) % lanes_.size()].get();
      if (!usable(*lane, suspects_too)) continue;
      const auto rank = [](const Lane& one) { return std::pair(one.state() != LaneState::kUp, one.in_flight()); };
      if (best == nullptr || rank(*lane) < rank(*best)) best = lane;
    }
    return best;
  }

  bool send(std::int64_t now_ns, bool suspects_too) {
    while (Lane* const lane = choose(suspects_too)) {
      asked_.push_back({lane, Said::kNotNow});
      auto lookup = message(now_ns);
      if (!lane->send(lookup)) continue;
      asked_.back().said = Said::kNothing;
      count(call_.counters.messages);
      running_.push_back({std::move(lookup), lane});
      return true;
    }
    return false;
  }

  std::shared_ptr<Try> message(std::int64_t now_ns) const {
    const Question& question = call_.question;
    auto lookup = std::make_shared<Try>();
    lookup->table = question.table;
    lookup->ids = ids_;
    lookup->dim = question.dim;
    lookup->mailbox = call_.mailbox;
    LookupHeader& header = lookup->header;
    header.wire = question.wire;
    header.name_bytes = static_cast<std::uint8_t>(question.table.size());
    header.epoch = question.epoch;
    header.map_version = question.view->map_version;
    header.shard = shard_;
    header.shards = static_cast<std::uint32_t>(question.view->shards.size());
    header.budget_us = static_cast<std::uint64_t>(std::max<std::int64_t>(1, (question.deadline_ns - now_ns) / 1000));
    header.ids = static_cast<std::uint32_t>(ids_->size());
    return lookup;
  }

  void keep_best(const std::shared_ptr<Try>& lookup) {
    const auto had = [](const Try& one) { return one.rows - one.missing; };
    if (best_ == nullptr || had(*lookup) > had(*best_)) best_ = lookup;
  }

  void give_up(RowStatus rest) {
    for (const Running& one : running_) keep_best(one.lookup);
    rest_ = rest;
    settled_ = true;
    forget_all();
  }

  void forget_all() {
    for (const Running& one : running_) {
      one.lookup->outcome = Outcome::kBroken;  // so that nothing is added to it while its rows are read
      one.lane->forget(*one.lookup);
    }
    running_.clear();
  }

  Shared& call_;
  const std::vector<std::shared_ptr<Lane>>& lanes_;
  const std::uint32_t shard_;
  const ShardIds ids_;
  std::vector<Running> running_;
  std::vector<Asked> asked_;  // each lane at most once
  std::shared_ptr<Try> best_;
  RowStatus rest_ = RowStatus::kUnavailable;
  std::int64_t round_ns_ = 0;
  std::int64_t pause_ns_ = 2 * kMs;
  bool settled_;
  bool started_ = false;
  bool hedged_ = false;
  bool map_differs_ = false;  // a replica says so, and none answers
};

std::chrono::steady_clock::time_point time_of(std::int64_t ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

// False when a shard has another map and there may be another try.
bool run(Shared& call, std::vector<std::unique_ptr<Part>>& parts) {
  const Question& question = call.question;
  std::unique_lock lock(call.mailbox->mutex);
  for (;;) {
    const std::int64_t now_ns = monotonic_ns();
    const bool cancelled = question.cancelled != nullptr && question.cancelled->load(std::memory_order_relaxed);
    std::int64_t wake_ns = question.deadline_ns;
    if (question.cancelled != nullptr) wake_ns = std::min(wake_ns, now_ns + kCancelNs);
    bool settled = true;
    for (const auto& part : parts) {
      if (!part->settled()) part->step(now_ns, cancelled || now_ns >= question.deadline_ns);
      if (part->map_differs() && !question.last_try) return false;
      if (part->settled()) continue;
      settled = false;
      wake_ns = std::min(wake_ns, part->wake_ns(now_ns));
    }
    if (settled) return true;
    call.mailbox->changed.wait_until(lock, time_of(wake_ns));
  }
}

}  // namespace

bool ask_shards(const Question& question, const std::vector<ShardIds>& ids, Pace& pace, CallCounters& counters,
                std::vector<PartAnswer>* answers) {
  const std::int64_t now_ns = monotonic_ns();
  const std::int64_t left_ns = std::max(2 * kMs, question.deadline_ns - now_ns);
  // Never less than what is usual, or a slow cluster would be asked everything twice; but in time for a second try.
  const std::int64_t stall_ns =
      std::min(left_ns / 2, std::max(pace.usual_ns(), std::min(left_ns / 4, question.options.stall_ms * kMs)));
  Shared call{question, pace, counters, std::make_shared<Mailbox>(), now_ns, stall_ns, pace.hedge_after_ns(stall_ns)};
  std::vector<std::unique_ptr<Part>> parts;
  for (std::uint32_t shard = 0; shard < ids.size(); ++shard) {
    parts.push_back(std::make_unique<Part>(call, shard, ids[shard]));
  }
  bool done = false;
  try {
    done = run(call, parts);
  } catch (...) {
    const std::lock_guard lock(call.mailbox->mutex);
    parts.clear();
    throw;
  }
  answers->clear();
  const std::lock_guard lock(call.mailbox->mutex);
  if (std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part->map_differs(); })) {
    count(counters.mismatches);
  }
  for (const auto& part : parts) answers->push_back(part->answer());
  parts.clear();
  return done;
}

}  // namespace paramserver::flight
