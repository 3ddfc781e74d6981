#include "paramserver/csrc/flight/client_try.h"

#include <algorithm>
#include <utility>

#include "paramserver/csrc/row_source.h"

namespace paramserver::flight {
namespace {

bool fits(const Try& to, const AnswerHeader& header) {
  return header.wire == to.header.wire && header.epoch == to.header.epoch && header.dim == to.dim &&
         header.first == to.rows && header.count <= to.header.ids - to.rows;
}

// A status that nobody knows is no row either.
std::uint32_t missing_in(const Chunk& chunk) {
  return static_cast<std::uint32_t>(std::count_if(
      chunk.statuses, chunk.statuses + chunk.header.count, [](std::uint8_t status) {
        return status == static_cast<std::uint8_t>(RowStatus::kUnavailable) || status >= kRowStatuses;
      }));
}

}  // namespace

bool deliver(Try& to, Chunk chunk, std::int64_t now_ns) {
  const std::lock_guard lock(to.mailbox->mutex);
  if (to.outcome != Outcome::kWaiting) return true;
  to.silence_ns = std::max(to.silence_ns, now_ns - to.heard_ns);
  to.heard_ns = now_ns;
  if (chunk.header.code != AnswerCode::kOk) {
    to.outcome = Outcome::kRefused;
    to.code = chunk.header.code;
    to.reason = std::move(chunk.message);
  } else if (!fits(to, chunk.header)) {
    to.outcome = Outcome::kBroken;
    to.reason = "an answer that is not for what was asked: epoch, dim, wire type or order of rows differ";
  } else {
    to.rows += chunk.header.count;
    to.missing += missing_in(chunk);
    to.chunks.push_back(std::move(chunk));
    if (to.rows == to.header.ids) to.outcome = Outcome::kAnswered;
  }
  if (to.outcome == Outcome::kWaiting) return false;
  to.mailbox->changed.notify_all();
  return true;
}

void fail(Try& to, std::string reason) {
  const std::lock_guard lock(to.mailbox->mutex);
  if (to.outcome != Outcome::kWaiting) return;
  to.outcome = Outcome::kBroken;
  to.reason = std::move(reason);
  to.mailbox->changed.notify_all();
}

}  // namespace paramserver::flight
