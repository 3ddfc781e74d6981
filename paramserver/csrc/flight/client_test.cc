// The client's parts: routing, reading answers as a stranger may send them, putting chunks together, and what a lane
// keeps. What needs answers from streams is tested against servers, in tests/paramserver/remote.
#include <arrow/api.h>
#include <arrow/flight/api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <limits>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/flight/client_answer.h"
#include "paramserver/csrc/flight/client_lane.h"
#include "paramserver/csrc/flight/client_pace.h"
#include "paramserver/csrc/flight/client_router.h"
#include "paramserver/csrc/flight/client_try.h"
#include "paramserver/csrc/flight/flight_test.h"
#include "paramserver/csrc/hash.h"

namespace paramserver::flight {
namespace {

void check_routes(Router& router, const std::vector<std::int64_t>& ids, std::uint32_t shards) {
  Routes routes;
  router.route(ids.data(), ids.size(), shards, &routes);
  CHECK(routes.ids.size() == shards && routes.first.size() == shards + 1 && routes.number.size() == ids.size());
  std::vector<std::int64_t> unique;
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    CHECK(routes.first[shard] == unique.size());
    for (const std::int64_t id : *routes.ids[shard]) {
      CHECK(shard_of(id, shards) == shard);
      unique.push_back(id);
    }
  }
  CHECK(routes.first[shards] == unique.size());
  CHECK(std::set<std::int64_t>(unique.begin(), unique.end()).size() == unique.size());
  for (std::size_t i = 0; i < ids.size(); ++i) CHECK(unique[routes.number[i]] == ids[i]);
  CHECK(std::set<std::int64_t>(ids.begin(), ids.end()).size() == unique.size());
}

void ids_are_routed_once_and_found_again() {
  Router router;
  std::mt19937_64 random(5);
  for (const std::uint32_t shards : {1u, 2u, 3u, 7u, 64u}) {
    check_routes(router, {}, shards);
    check_routes(router, {0, -1, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), 0},
                 shards);
    for (const std::size_t n : {1u, 15u, 16u, 1000u, 5000u}) {
      std::vector<std::int64_t> ids(n);
      for (auto& id : ids) id = static_cast<std::int64_t>(random() % (random() % 2 ? n / 2 + 1 : ~0ULL));
      check_routes(router, ids, shards);
      check_routes(router, std::vector<std::int64_t>(n, -7), shards);
    }
  }
}

std::shared_ptr<arrow::Array> one_value(const std::string& bytes) {
  arrow::BinaryBuilder builder;
  CHECK(builder.Append(bytes).ok());
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::RecordBatch> rows_batch(std::size_t rows_bytes, std::size_t statuses) {
  const auto schema = arrow::schema({arrow::field("rows", arrow::binary()), arrow::field("statuses", arrow::binary())});
  return arrow::RecordBatch::Make(schema, 1,
                                  {one_value(std::string(rows_bytes, 'r')), one_value(std::string(statuses, '\0'))});
}

std::shared_ptr<arrow::Buffer> metadata(AnswerHeader header, const std::string& message = {}) {
  header.message_bytes = static_cast<std::uint32_t>(message.size());
  return arrow::Buffer::FromString(std::string(reinterpret_cast<const char*>(&header), sizeof header) + message);
}

AnswerHeader header_of(std::uint32_t first, std::uint32_t count) {
  AnswerHeader header;
  header.lookup = 9;
  header.epoch = 4;
  header.dim = 2;
  header.first = first;
  header.count = count;
  return header;
}

bool is_bad(const std::variant<Chunk, BadAnswer>& read, const char* needle) {
  const auto* bad = std::get_if<BadAnswer>(&read);
  return bad != nullptr && bad->reason.find(needle) != std::string::npos;
}

void answers_are_read_or_refused() {
  const auto good = read_answer(metadata(header_of(0, 3)).get(), rows_batch(24, 3));
  CHECK(std::holds_alternative<Chunk>(good) && std::get<Chunk>(good).rows[23] == std::byte{'r'});
  CHECK(is_bad(read_answer(nullptr, nullptr), "metadata's length"));
  CHECK(is_bad(read_answer(metadata(header_of(0, 3)).get(), nullptr), "no batch"));
  CHECK(is_bad(read_answer(metadata(header_of(0, 3)).get(), rows_batch(23, 3)), "bytes of the rows"));
  CHECK(is_bad(read_answer(metadata(header_of(0, 3)).get(), rows_batch(24, 2)), "statuses"));
  CHECK(is_bad(read_answer(metadata(header_of(0, 3)).get(), rows_batch(24, 3)->RemoveColumn(1).ValueOrDie()),
               "columns"));
  AnswerHeader other = header_of(0, 3);
  other.magic = 1;
  CHECK(is_bad(read_answer(metadata(other).get(), rows_batch(24, 3)), "magic"));
  other = header_of(0, 3);
  other.wire = static_cast<WireType>(9);
  CHECK(is_bad(read_answer(metadata(other).get(), rows_batch(24, 3)), "wire"));
  other = header_of(0, 0);
  other.code = AnswerCode::kClosing;
  const auto refusal = read_answer(metadata(other, "why").get(), nullptr);
  CHECK(std::holds_alternative<Chunk>(refusal) && std::get<Chunk>(refusal).message == "why");
}

void noise_is_never_rows() {
  std::mt19937_64 random(3);
  const auto batch = rows_batch(24, 3);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = metadata(header_of(0, 3))->ToString();
    bytes.resize(random() % 50, '\7');
    for (int flips = static_cast<int>(random() % 4); flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1u << (random() % 8));
    }
    const auto read = read_answer(arrow::Buffer::FromString(bytes).get(), random() % 2 ? batch : nullptr);
    const auto* chunk = std::get_if<Chunk>(&read);
    CHECK(chunk == nullptr || chunk->header.count == 0 ||
          chunk->header.count * wire_row_bytes(chunk->header.wire, chunk->header.dim) == 24);
  }
}

Try asked(std::uint32_t ids) {
  Try lookup;
  lookup.header.ids = ids;
  lookup.header.epoch = 4;
  lookup.dim = 2;
  lookup.mailbox = std::make_shared<Mailbox>();
  return lookup;
}

Chunk chunk_of(const AnswerHeader& header) {
  return std::get<Chunk>(read_answer(metadata(header).get(), rows_batch(8 * header.count, header.count)));
}

void chunks_are_put_together_in_order_or_not_at_all() {
  Try lookup = asked(5);
  CHECK(!deliver(lookup, chunk_of(header_of(0, 2)), 10) && lookup.rows == 2);
  CHECK(deliver(lookup, chunk_of(header_of(2, 3)), 30) && lookup.outcome == Outcome::kAnswered);
  CHECK(lookup.silence_ns == 20);
  CHECK(deliver(lookup, chunk_of(header_of(0, 2)), 40) && lookup.chunks.size() == 2);

  const auto broken_by = [](const AnswerHeader& header) {
    Try other = asked(5);
    return deliver(other, chunk_of(header), 1) && other.outcome == Outcome::kBroken && other.rows == 0;
  };
  CHECK(broken_by(header_of(1, 2)));
  CHECK(broken_by(header_of(0, 6)));
  AnswerHeader header = header_of(0, 2);
  header.epoch = 5;
  CHECK(broken_by(header));
  header = header_of(0, 2);
  header.wire = WireType::kF16;
  header.dim = 4;
  CHECK(broken_by(header));

  Try refused = asked(1);
  header = header_of(0, 0);
  header.code = AnswerCode::kOverloaded;
  CHECK(deliver(refused, std::get<Chunk>(read_answer(metadata(header).get(), nullptr)), 1));
  CHECK(refused.outcome == Outcome::kRefused && refused.code == AnswerCode::kOverloaded);
}

void the_pace_is_learnt_and_hedges_are_few() {
  constexpr std::int64_t kMs = 1'000'000;
  Pace learnt(-1);
  for (int i = 0; i < 200; ++i) learnt.record(kMs);
  CHECK(learnt.hedge_after_ns(100 * kMs) < 4 * kMs);
  for (int i = 0; i < 200; ++i) learnt.record((i % 2 ? 30 : 10) * kMs);
  CHECK(learnt.hedge_after_ns(500 * kMs) > 30 * kMs && learnt.hedge_after_ns(25 * kMs) == 25 * kMs);
  Pace never(0), fixed(7);
  CHECK(never.hedge_after_ns(100 * kMs) == 100 * kMs && fixed.hedge_after_ns(100 * kMs) == 7 * kMs);
  int hedges = 0;
  while (fixed.take_hedge()) ++hedges;
  for (int i = 0; i < 100; ++i) {
    fixed.record(kMs);
    hedges += fixed.take_hedge();
  }
  CHECK(hedges == 30);
}

// Takes a stream and reads nothing of it.
class DeafServer final : public arrow::flight::FlightServerBase {
 public:
  arrow::Status DoExchange(const arrow::flight::ServerCallContext&,
                           std::unique_ptr<arrow::flight::FlightMessageReader>,
                           std::unique_ptr<arrow::flight::FlightMessageWriter>) override {
    released.get_future().wait();
    return arrow::Status::OK();
  }
  std::promise<void> released;
};

void what_is_forgotten_is_not_kept() {
#ifdef __SANITIZE_THREAD__
  std::puts("client_test: lanes skipped under ThreadSanitizer, which cannot see into the wheel's gRPC");
#else
  DeafServer server;
  CHECK(server.Init(arrow::flight::FlightServerOptions(
                        arrow::flight::Location::ForGrpcTcp("127.0.0.1", 0).ValueOrDie())).ok());
  {
    LaneOptions options;
    options.connect_ms = 60'000;
    Lane lane("grpc://127.0.0.1:" + std::to_string(server.port()), options);
    std::vector<std::shared_ptr<Try>> held;
    std::vector<std::weak_ptr<Try>> watched;
    for (int i = 0; i < 40; ++i) {
      auto lookup = std::make_shared<Try>(asked(1 << 16));
      lookup->table = "item";
      lookup->ids = std::make_shared<const std::vector<std::int64_t>>(1 << 16);
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!lane.send(lookup) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      watched.push_back(lookup);
      held.push_back(std::move(lookup));
    }
    CHECK(lane.in_flight() >= 40);
    for (const auto& lookup : held) lane.forget(*lookup);
    held.clear();
    // The one that is being written may stay until its write ends.
    CHECK(std::count_if(watched.begin(), watched.end(), [](const auto& one) { return !one.expired(); }) <= 1);
    server.released.set_value();
  }
  CHECK(server.Shutdown().ok());
#endif
}

}  // namespace

void test_client() {
  ids_are_routed_once_and_found_again();
  answers_are_read_or_refused();
  noise_is_never_rows();
  chunks_are_put_together_in_order_or_not_at_all();
  the_pace_is_learnt_and_hedges_are_few();
  what_is_forgotten_is_not_kept();
}

}  // namespace paramserver::flight
