// A shard server and its clients over loopback, with epochs coming and going: what sanitizers watch.
#include "paramserver/csrc/flight/shard_server.h"

#include <arrow/api.h>
#include <arrow/flight/api.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/flight/binary_value.h"
#include "paramserver/csrc/flight/flight_test.h"

namespace paramserver::flight {
namespace {

namespace fl = arrow::flight;

// Row i of an epoch is the id, the epoch, and a third.
class EpochRows final : public RowSource {
 public:
  std::uint32_t dim() const noexcept override { return 3; }
  void lookup(const LookupContext& context, const std::int64_t* ids, std::size_t n, RowType, void* out,
              RowStatus* status) const noexcept override {
    auto* rows = static_cast<float*>(out);
    for (std::size_t i = 0; i < n; ++i) {
      rows[3 * i] = static_cast<float>(ids[i]);
      rows[3 * i + 1] = static_cast<float>(context.epoch);
      rows[3 * i + 2] = 1.0f / 3.0f;
      status[i] = RowStatus::kHit;
    }
  }
  void lookup_pooled(const LookupContext&, const std::int64_t*, const std::int32_t*, std::size_t, Pooling, const float*,
                     RowType, void*, RowStatus*) const noexcept override {}
};

struct Asked {
  std::int64_t first_id;
  std::uint32_t ids;
  std::uint64_t epoch;
  std::uint32_t got = 0;
};

void send(fl::FlightStreamWriter& writer, const std::shared_ptr<arrow::Schema>& schema, std::uint64_t lookup,
          const Asked& asked) {
  arrow::Int64Builder builder;
  for (std::uint32_t i = 0; i < asked.ids; ++i) CHECK(builder.Append(asked.first_id + i).ok());
  const auto batch = arrow::RecordBatch::Make(schema, asked.ids, {builder.Finish().ValueOrDie()});
  LookupHeader header;
  header.name_bytes = 4;
  header.lookup = lookup;
  header.epoch = asked.epoch;
  header.shards = 1;
  header.ids = asked.ids;
  const std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  CHECK(writer.WriteWithMetadata(*batch, arrow::Buffer::FromString(bytes + "item")).ok());
}

// Takes one message; true when it ended its lookup.
bool take(fl::FlightStreamReader& reader, std::map<std::uint64_t, Asked>& open, std::uint64_t& ended) {
  const auto chunk = reader.Next().ValueOrDie();
  AnswerHeader header;
  std::memcpy(&header, chunk.app_metadata->data(), sizeof header);
  const auto found = open.find(header.lookup);
  CHECK(found != open.end());
  if (found == open.end()) return false;
  ended = header.lookup;
  Asked& asked = found->second;
  if (header.code != AnswerCode::kOk) {
    CHECK(header.code == AnswerCode::kUnknownEpoch);  // retired meanwhile
    return true;
  }
  CHECK(header.first == asked.got && header.epoch == asked.epoch && header.dim == 3);
  const auto rows = binary_value(*chunk.data->column(0));
  CHECK(rows.size() == header.count * 12u);
  if (header.count > 0) {
    float row[3];
    std::memcpy(row, rows.data(), sizeof row);
    CHECK(row[0] == static_cast<float>(asked.first_id + header.first) && row[1] == static_cast<float>(asked.epoch));
  }
  asked.got += header.count;
  return asked.got == asked.ids;
}

void ask(int port, ShardServer& server, std::uint64_t seed) {
  auto client = fl::FlightClient::Connect(fl::Location::ForGrpcTcp("127.0.0.1", port).ValueOrDie()).ValueOrDie();
  auto exchange = client->DoExchange({}, fl::FlightDescriptor::Command("lookup")).ValueOrDie();
  const auto schema = arrow::schema({arrow::field("id", arrow::int64())});
  CHECK(exchange.writer->Begin(schema).ok());
  std::mt19937_64 random(seed);
  std::map<std::uint64_t, Asked> open;
  std::uint64_t ended = 0;
  for (std::uint64_t lookup = 1; lookup <= 100; ++lookup) {
    const std::uint32_t sizes[] = {0, 1, 500, 60'000};
    const Asked asked{static_cast<std::int64_t>(random() % 1000), sizes[random() % 4], server.state().newest()};
    open.emplace(lookup, asked);
    send(*exchange.writer, schema, lookup, asked);
    while (open.size() > 8) {
      if (take(*exchange.reader, open, ended)) open.erase(ended);
    }
  }
  CHECK(exchange.writer->DoneWriting().ok());
  while (!open.empty()) {
    if (take(*exchange.reader, open, ended)) open.erase(ended);
  }
  CHECK(exchange.reader->Next().ValueOrDie().app_metadata == nullptr);
  CHECK(exchange.writer->Close().ok());
}

}  // namespace

void test_shard_server() {
#ifdef __SANITIZE_THREAD__
  std::puts("shard_server_test: skipped under ThreadSanitizer, which cannot see into the wheel's gRPC");
#else
  ShardOptions options;
  options.bounds.inline_ids_max = 1000;
  ShardServer server(std::move(options));
  server.state().set_place({0, 0, 1});
  server.state().publish(1, {{"item", std::make_shared<EpochRows>(), false, nullptr}});
  std::vector<std::thread> clients;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    clients.emplace_back([&server, seed] { ask(server.port(), server, seed); });
  }
  for (std::uint64_t epoch = 2; epoch < 200; ++epoch) {
    server.state().publish(epoch, {{"item", std::make_shared<EpochRows>(), false, nullptr}});
    if (epoch > 20) server.state().retire(epoch - 20);
  }
  for (std::thread& client : clients) client.join();
  server.stop(std::chrono::milliseconds(1000));
  CHECK(server.counters().lookups.count() == 0);
#endif
}

}  // namespace paramserver::flight
