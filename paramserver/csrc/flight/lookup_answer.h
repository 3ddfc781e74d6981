// Answers one lookup: finds the epoch and the table, looks the rows up chunk by chunk and writes each chunk as soon as
// it is there.
//
// Thread-safety: may run on any thread, several at once. Nothing here touches Python.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "paramserver/csrc/flight/answer_writer.h"
#include "paramserver/csrc/flight/lookup_message.h"
#include "paramserver/csrc/flight/shard_state.h"

namespace paramserver::flight {

inline constexpr std::size_t kChunkBytes = 512 * 1024;  // of rows in an answer chunk; one row at least
inline constexpr std::size_t kBlockingCallBytes = 64 << 20;  // of rows that one call asks of a table with cold rows

struct AnswerContext {
  const ShardState& state;
  ServerCounters& counters;
  const std::function<void()>& epoch_missing;  // told when a lookup names an epoch newer than all served
  std::chrono::milliseconds epoch_wait;        // how long such a lookup waits for it
};

struct ArrivedLookup {
  LookupMessage message;
  std::chrono::steady_clock::time_point arrived;
};

// Whether answering may wait: for a disk, or for an epoch that is being published.
bool may_wait(const AnswerContext& context, const LookupMessage& message);

// Writes the whole answer, or a refusal. Never throws: what goes wrong is the answer.
void answer(const AnswerContext& context, const ArrivedLookup& lookup, AnswerWriter& writer) noexcept;

// The refusal of a lookup, counted.
void refuse(const AnswerContext& context, const LookupHeader& header, AnswerCode code, const std::string& reason,
            AnswerWriter& writer);

}  // namespace paramserver::flight
