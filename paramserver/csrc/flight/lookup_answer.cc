#include "paramserver/csrc/flight/lookup_answer.h"

#include <arrow/api.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "paramserver/csrc/hash.h"
#include "paramserver/csrc/row_format.h"

namespace paramserver::flight {

static_assert(wire_row_bytes(WireType::kInt8, 5) == stored_row_bytes(Stored::kInt8, 5));

namespace {

using Clock = std::chrono::steady_clock;

// A refusal on its way to the client.
struct Refused {
  AnswerCode code;
  std::string reason;
};

Clock::time_point deadline_of(const ArrivedLookup& lookup) {
  const std::uint64_t budget_us = lookup.message.header.budget_us;
  // A budget that does not fit the clock is none.
  if (budget_us == 0 || budget_us > std::uint64_t{1} << 50) return Clock::time_point::max();
  return lookup.arrived + std::chrono::microseconds(budget_us);
}

void check_place(const Place& here, const LookupHeader& header) {
  if (header.map_version == here.map_version && header.shard == here.shard && header.shards == here.shards) return;
  const auto words = [](std::uint64_t version, std::uint32_t shard, std::uint32_t shards) {
    return "shard " + std::to_string(shard) + " of " + std::to_string(shards) + " in map version " +
           std::to_string(version);
  };
  throw Refused{AnswerCode::kShardMapMismatch,
                "this is " + words(here.map_version, here.shard, here.shards) + ", the lookup is for " +
                    words(header.map_version, header.shard, header.shards) + ": read the shard map again"};
}

// An id that belongs elsewhere would come back as unknown, which is a wrong row.
void check_ids(const Place& here, const std::int64_t* ids, std::size_t n) {
  if (here.shards == 1) return;
  std::uint32_t strays = 0;
  for (std::size_t i = 0; i < n; ++i) strays += shard_of(ids[i], here.shards) != here.shard;
  if (strays > 0) {
    throw Refused{AnswerCode::kBadRequest, std::to_string(strays) + " ids belong to other shards than " +
                                               std::to_string(here.shard) + " of " + std::to_string(here.shards)};
  }
}

std::shared_ptr<const ServedEpoch> find_epoch(const AnswerContext& context, const ArrivedLookup& lookup,
                                              Clock::time_point deadline) {
  const std::uint64_t epoch = lookup.message.header.epoch;
  auto served = context.state.find(epoch);
  if (served == nullptr && epoch > context.state.newest()) {
    context.epoch_missing();
    served = context.state.wait(epoch, std::min(deadline, lookup.arrived + context.epoch_wait));
  }
  if (served == nullptr) {
    throw Refused{AnswerCode::kUnknownEpoch, "epoch " + std::to_string(epoch) + " is not served here; the newest is " +
                                                 std::to_string(context.state.newest())};
  }
  return served;
}

const ServedTable& find_table(const ServedEpoch& epoch, const std::string& name) {
  const auto found = epoch.tables.find(name);
  if (found != epoch.tables.end()) return found->second;
  std::string names;
  for (const auto& [other, table] : epoch.tables) names += (names.empty() ? "" : ", ") + other;
  throw Refused{AnswerCode::kUnknownTable, "no table of that name; there are: " + names};
}

// Rows of ids into `out` in the wire type; int8 rows are quantized from float32.
void look_up(const ServedTable& table, const LookupContext& context, const std::int64_t* ids, std::size_t n,
             WireType wire, std::uint8_t* out, RowStatus* status) {
  if (wire != WireType::kInt8) {
    table.source->lookup(context, ids, n, static_cast<RowType>(wire), out, status);
    return;
  }
  const std::size_t dim = table.source->dim();
  std::vector<float> rows(n * dim);
  table.source->lookup(context, ids, n, RowType::kF32, rows.data(), status);
  for (std::size_t i = 0; i < n; ++i) {
    quantize_row(&rows[i * dim], dim, reinterpret_cast<std::byte*>(out) + i * wire_row_bytes(wire, dim));
  }
}

std::shared_ptr<arrow::Buffer> allocate(std::size_t bytes) {
  auto buffer = arrow::AllocateBuffer(static_cast<std::int64_t>(bytes));
  if (!buffer.ok()) throw Refused{AnswerCode::kOverloaded, "no memory for the answer"};
  return std::move(buffer).ValueUnsafe();
}

// How many rows are looked up by one call. Rows in RAM go out as they are found; cold ones are read in one batch, many
// at a time, so their lookup is cut up only where the memory for its answer would be too much.
std::size_t rows_per_call(const ServedTable& table, std::size_t chunk, WireType wire) {
  if (!table.blocking) return chunk;
  // int8 rows are float32 rows before they are sent.
  const WireType held = wire == WireType::kInt8 ? WireType::kF32 : wire;
  return std::max(chunk, kBlockingCallBytes / wire_row_bytes(held, table.source->dim()));
}

struct Found {
  std::size_t first;  // row of the lookup
  std::size_t rows;
  std::shared_ptr<arrow::Buffer> row_bytes;
  std::shared_ptr<arrow::Buffer> statuses;
};

Found find_rows(const ServedTable& table, const LookupContext& context, const LookupMessage& message,
                std::size_t first, std::size_t n) {
  const std::size_t row_bytes = wire_row_bytes(message.header.wire, table.source->dim());
  Found found{first, n, allocate(n * row_bytes), allocate(n)};
  auto* status = reinterpret_cast<RowStatus*>(found.statuses->mutable_data());
  look_up(table, context, message.ids + first, n, message.header.wire, found.row_bytes->mutable_data(), status);
  return found;
}

// A table that let the epoch go while it was asked has no rows for it, and says no more than that. Epochs are taken
// from `state` before they are taken from tables, so it tells why.
void expect_held(const ShardState& state, std::uint64_t epoch, const Found& found) {
  const void* missed = std::memchr(found.statuses->data(), static_cast<int>(RowStatus::kUnavailable), found.rows);
  if (missed != nullptr && state.find(epoch) == nullptr) {
    throw Refused{AnswerCode::kUnknownEpoch, "epoch " + std::to_string(epoch) +
                                                 " was retired meanwhile; the newest is " +
                                                 std::to_string(state.newest())};
  }
}

// Writes found rows as messages of at most `chunk` rows.
void send_found(const Found& found, const LookupHeader& header, std::size_t dim, std::size_t chunk,
                AnswerWriter& writer) {
  const std::size_t row_bytes = wire_row_bytes(header.wire, dim);
  std::size_t at = 0;
  do {
    const std::size_t n = std::min(chunk, found.rows - at);
    const auto slice = [&](const std::shared_ptr<arrow::Buffer>& buffer, std::size_t width) {
      return arrow::SliceBuffer(buffer, static_cast<std::int64_t>(at * width), static_cast<std::int64_t>(n * width));
    };
    writer.send({.wire = header.wire,
                 .lookup = header.lookup,
                 .epoch = header.epoch,
                 .first = static_cast<std::uint32_t>(found.first + at),
                 .count = static_cast<std::uint32_t>(n),
                 .dim = static_cast<std::uint32_t>(dim)},
                slice(found.row_bytes, row_bytes), slice(found.statuses, 1));
    at += n;
  } while (at < found.rows);
}

void send_rows(const ServedTable& table, const ShardState& state, const ArrivedLookup& lookup,
               Clock::time_point deadline, AnswerWriter& writer) {
  const LookupHeader& header = lookup.message.header;
  const std::size_t dim = table.source->dim();
  const std::size_t row_bytes = wire_row_bytes(header.wire, dim);
  const std::size_t chunk = std::max<std::size_t>(1, kChunkBytes / row_bytes);
  const std::size_t call = rows_per_call(table, chunk, header.wire);
  std::uint64_t cold_reads_left = std::numeric_limits<std::uint64_t>::max();
  const LookupContext context{.epoch = header.epoch,
                              .deadline_ns = std::chrono::nanoseconds(deadline.time_since_epoch()).count(),
                              .cancelled = &writer.gone(),
                              .cold_reads_left = &cold_reads_left};
  std::size_t first = 0;
  do {
    const std::size_t n = std::min<std::size_t>(call, header.ids - first);
    const Found found = find_rows(table, context, lookup.message, first, n);
    expect_held(state, header.epoch, found);
    table.counters->sent(reinterpret_cast<const RowStatus*>(found.statuses->data()), n, row_bytes);
    send_found(found, header, dim, chunk, writer);
    first += n;
    if (writer.gone().load(std::memory_order_relaxed)) return;
    if (first < header.ids && Clock::now() >= deadline) {
      throw Refused{AnswerCode::kExpired, "the budget was over after " + std::to_string(first) + " rows"};
    }
  } while (first < header.ids);
  table.counters->answered(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - lookup.arrived).count());
}

void answer_or_throw(const AnswerContext& context, const ArrivedLookup& lookup, AnswerWriter& writer) {
  const LookupHeader& header = lookup.message.header;
  const Clock::time_point deadline = deadline_of(lookup);
  if (Clock::now() >= deadline) throw Refused{AnswerCode::kExpired, "the budget was over before the lookup began"};
  const Place here = context.state.place();
  check_place(here, header);
  check_ids(here, lookup.message.ids, header.ids);
  const auto epoch = find_epoch(context, lookup, deadline);
  send_rows(find_table(*epoch, lookup.message.table), context.state, lookup, deadline, writer);
}

}  // namespace

bool may_wait(const AnswerContext& context, const LookupMessage& message) {
  const auto served = context.state.find(message.header.epoch);
  if (served == nullptr) return true;
  const auto found = served->tables.find(message.table);
  return found != served->tables.end() && found->second.blocking;
}

void answer(const AnswerContext& context, const ArrivedLookup& lookup, AnswerWriter& writer) noexcept {
  try {
    answer_or_throw(context, lookup, writer);
  } catch (const Refused& refused) {
    refuse(context, lookup.message.header, refused.code, refused.reason, writer);
  } catch (const std::exception& error) {
    refuse(context, lookup.message.header, AnswerCode::kOverloaded, error.what(), writer);
  }
}

void refuse(const AnswerContext& context, const LookupHeader& header, AnswerCode code, const std::string& reason,
            AnswerWriter& writer) {
  add(context.counters.refusals[static_cast<std::size_t>(code)], 1);
  writer.refuse({.wire = header.wire, .code = code, .lookup = header.lookup, .epoch = header.epoch}, reason);
}

}  // namespace paramserver::flight
