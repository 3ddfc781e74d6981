// What a lookup costs beyond a bare Flight copy of the same bytes, over loopback: paramserver_flight_bench [ROWS].
//
// Two servers in this process answer the same client, turn about: a shard server over a table of ROWS rows of 32
// numbers in f16, and one that copies as many bytes from memory into the same messages. Prints a JSON object a size:
// milliseconds per lookup, median and p99 of both, and the ratio of the medians.
#include <arrow/api.h>
#include <arrow/flight/api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "paramserver/csrc/flight/answer_writer.h"
#include "paramserver/csrc/flight/lookup_answer.h"
#include "paramserver/csrc/flight/shard_server.h"
#include "paramserver/csrc/table.h"

namespace paramserver::flight {
namespace {

namespace fl = arrow::flight;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kDim = 32;
constexpr std::size_t kRowBytes = 2 * kDim;
constexpr const char* kTable = "item";

// Answers each lookup with rows copied from one block of memory, in the chunks and messages of a shard server.
class BareServer final : public fl::FlightServerBase {
 public:
  BareServer() : bytes_(std::size_t{1} << 26, std::byte{7}) {
    CheckOk(Init(fl::FlightServerOptions(fl::Location::ForGrpcTcp("127.0.0.1", 0).ValueOrDie())));
  }

  static void CheckOk(const arrow::Status& status) {
    if (!status.ok()) {
      std::fprintf(stderr, "flight_bench: %s\n", status.ToString().c_str());
      std::exit(1);
    }
  }

  arrow::Status DoExchange(const fl::ServerCallContext&, std::unique_ptr<fl::FlightMessageReader> reader,
                           std::unique_ptr<fl::FlightMessageWriter> writer) override {
    AnswerWriter answers(*writer);
    answers.begin();
    while (true) {
      ARROW_ASSIGN_OR_RAISE(const auto chunk, reader->Next());
      if (chunk.data == nullptr) return arrow::Status::OK();
      copy(static_cast<std::size_t>(chunk.data->num_rows()), answers);
    }
  }

 private:
  void copy(std::size_t n, AnswerWriter& answers) {
    for (std::size_t first = 0; first < n;) {
      const std::size_t count = std::min(n - first, kChunkBytes / kRowBytes);
      auto rows = arrow::AllocateBuffer(static_cast<std::int64_t>(count * kRowBytes)).ValueOrDie();
      std::memcpy(rows->mutable_data(), bytes_.data() + first * kRowBytes, count * kRowBytes);
      auto statuses = arrow::AllocateBuffer(static_cast<std::int64_t>(count)).ValueOrDie();
      std::memset(statuses->mutable_data(), 0, count);
      answers.send({.first = static_cast<std::uint32_t>(first), .count = static_cast<std::uint32_t>(count)},
                   std::move(rows), std::move(statuses));
      first += count;
    }
  }

  std::vector<std::byte> bytes_ = {};
};

// One stream; asks and waits for the whole answer.
class Client {
 public:
  explicit Client(int port) {
    client_ = fl::FlightClient::Connect(fl::Location::ForGrpcTcp("127.0.0.1", port).ValueOrDie()).ValueOrDie();
    auto exchange = client_->DoExchange({}, fl::FlightDescriptor::Command("lookup")).ValueOrDie();
    writer_ = std::move(exchange.writer);
    reader_ = std::move(exchange.reader);
    BareServer::CheckOk(writer_->Begin(schema_));
  }
  ~Client() { BareServer::CheckOk(writer_->Close()); }

  double ask_ms(const std::shared_ptr<arrow::Array>& ids) {
    const auto started = Clock::now();
    LookupHeader header{.wire = WireType::kF16,
                        .name_bytes = static_cast<std::uint8_t>(std::strlen(kTable)),
                        .lookup = ++lookups_,
                        .epoch = 1,
                        .shards = 1,
                        .ids = static_cast<std::uint32_t>(ids->length())};
    std::string metadata(reinterpret_cast<const char*>(&header), sizeof header);
    const auto batch = arrow::RecordBatch::Make(schema_, ids->length(), {ids});
    BareServer::CheckOk(writer_->WriteWithMetadata(*batch, arrow::Buffer::FromString(metadata + kTable)));
    std::int64_t got = 0;
    while (got < ids->length()) {
      const auto chunk = reader_->Next().ValueOrDie();
      AnswerHeader answer;
      std::memcpy(&answer, chunk.app_metadata->data(), sizeof answer);
      if (answer.code != AnswerCode::kOk) std::exit(2);
      got += answer.count;
    }
    return std::chrono::duration<double, std::milli>(Clock::now() - started).count();
  }

 private:
  const std::shared_ptr<arrow::Schema> schema_ = arrow::schema({arrow::field("id", arrow::int64())});
  std::unique_ptr<fl::FlightClient> client_;
  std::unique_ptr<fl::FlightStreamWriter> writer_;
  std::unique_ptr<fl::FlightStreamReader> reader_;
  std::uint64_t lookups_ = 0;
};

std::shared_ptr<Table> table_of(std::int64_t rows) {
  auto table = std::make_shared<Table>(
      TableOptions{.dim = kDim, .stored = Stored::kF16, .rows_hint = static_cast<std::uint64_t>(rows)});
  constexpr std::int64_t kBatch = 4096;
  std::vector<std::int64_t> ids;
  const std::vector<float> values(kBatch * kDim, 0.5f);
  for (std::int64_t first = 0; first < rows; first += kBatch) {
    ids.clear();
    for (std::int64_t id = first; id < std::min(rows, first + kBatch); ++id) ids.push_back(id);
    table->upsert(ids.data(), values.data(), ids.size());
  }
  table->publish(1, 0);
  return table;
}

std::shared_ptr<arrow::Array> random_ids(std::int64_t n, std::int64_t rows, std::mt19937_64& random) {
  arrow::Int64Builder builder;
  BareServer::CheckOk(builder.Reserve(n));
  const auto bound = static_cast<std::uint64_t>(rows);
  for (std::int64_t i = 0; i < n; ++i) builder.UnsafeAppend(static_cast<std::int64_t>(random() % bound));
  return builder.Finish().ValueOrDie();
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

void measure(std::int64_t n, std::int64_t rows, Client& shard, Client& bare) {
  std::mt19937_64 random(static_cast<std::uint64_t>(n));
  std::vector<double> shard_ms, bare_ms;
  const int rounds = n >= 100'000 ? 100 : 500;
  for (int round = -10; round < rounds; ++round) {
    const auto ids = random_ids(n, rows, random);
    const double first = round % 2 ? shard.ask_ms(ids) : bare.ask_ms(ids);
    const double second = round % 2 ? bare.ask_ms(ids) : shard.ask_ms(ids);
    if (round < 0) continue;
    shard_ms.push_back(round % 2 ? first : second);
    bare_ms.push_back(round % 2 ? second : first);
  }
  std::printf("{\"ids\": %lld, \"lookup_ms\": %.3f, \"lookup_p99_ms\": %.3f, \"bare_ms\": %.3f, "
              "\"bare_p99_ms\": %.3f, \"ratio\": %.3f}\n",
              static_cast<long long>(n), quantile(shard_ms, 0.5), quantile(shard_ms, 0.99), quantile(bare_ms, 0.5),
              quantile(bare_ms, 0.99), quantile(shard_ms, 0.5) / quantile(bare_ms, 0.5));
}

int run(std::int64_t rows) {
  ShardOptions options;
  ShardServer server(std::move(options));
  server.state().set_place({0, 0, 1});
  server.state().publish(1, {{kTable, table_of(rows), false, nullptr}});
  BareServer bare;
  {
    Client to_shard(server.port());
    Client to_bare(bare.port());
    for (const std::int64_t n : {1, 1'000, 10'000, 100'000}) measure(n, rows, to_shard, to_bare);
  }
  BareServer::CheckOk(bare.Shutdown());
  return 0;
}

}  // namespace
}  // namespace paramserver::flight

int main(int count, char** words) {
  const long long rows = count > 1 ? std::atoll(words[1]) : 1'000'000;
  if (rows < 1 || rows > 100'000'000) {
    std::fprintf(stderr, "usage: paramserver_flight_bench [ROWS, 1 to 100000000]\n");
    return 1;
  }
  return paramserver::flight::run(rows);
}
