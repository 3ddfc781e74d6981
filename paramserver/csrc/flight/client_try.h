// One lookup message on its way to one replica, and what has come back for it.
//
// A call sends one message per shard, perhaps again to other replicas, and waits on its Mailbox; lanes put chunks into
// the Try that a chunk's lookup number names. A Try owns what it sends and what it receives: a call that gives up
// forgets it, and nothing that arrives later can touch the caller's memory.
//
// Thread-safety: `sent` fields are written before the Try is given to a lane; `got` fields under the mailbox's mutex.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paramserver/csrc/flight/client_answer.h"
#include "paramserver/csrc/flight/client_router.h"
#include "paramserver/csrc/flight/wire.h"

namespace paramserver::flight {

struct Mailbox {
  std::mutex mutex;
  std::condition_variable changed;
};

enum class Outcome : std::uint8_t {
  kWaiting,
  kAnswered,  // all rows are here
  kRefused,   // `code` says why
  kBroken,    // the stream broke, or what came was no answer
};

struct Try {
  // sent
  LookupHeader header;
  std::string table;
  ShardIds ids;
  std::uint32_t dim = 0;
  std::shared_ptr<Mailbox> mailbox;
  std::int64_t sent_ns = 0;

  // got
  Outcome outcome = Outcome::kWaiting;
  AnswerCode code = AnswerCode::kOk;
  std::string reason;
  std::vector<Chunk> chunks;    // in order, without a gap
  std::uint32_t rows = 0;       // in chunks
  std::uint32_t missing = 0;    // of those, rows that the replica could not get
  std::int64_t heard_ns = 0;    // when something last came, at first sent_ns
  std::int64_t silence_ns = 0;  // the longest wait for a chunk
};

// Takes a chunk into its Try, which is answered or broken once it is complete or does not fit. True, and the mailbox is
// told, when nothing more will come for it.
bool deliver(Try& to, Chunk chunk, std::int64_t now_ns);

// Ends a Try that nothing more will come for. Tells the mailbox.
void fail(Try& to, std::string reason);

}  // namespace paramserver::flight
