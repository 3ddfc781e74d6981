// Lookups as a stranger may send them: whatever the bytes, read_lookup answers with a lookup or with a reason.
#include <arrow/api.h>

#include <cstring>
#include <random>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/flight/flight_test.h"
#include "paramserver/csrc/flight/lookup_message.h"

namespace paramserver::flight {
namespace {

std::shared_ptr<arrow::RecordBatch> ids_batch(const std::vector<std::int64_t>& ids, bool null_last = false) {
  arrow::Int64Builder builder;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const arrow::Status status = null_last && i + 1 == ids.size() ? builder.AppendNull() : builder.Append(ids[i]);
    CHECK(status.ok());
  }
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("id", arrow::int64())}),
                                  static_cast<std::int64_t>(ids.size()), {builder.Finish().ValueOrDie()});
}

std::vector<std::uint8_t> metadata(LookupHeader header, const std::string& table) {
  header.name_bytes = static_cast<std::uint8_t>(table.size());
  std::vector<std::uint8_t> bytes(sizeof header + table.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, table.data(), table.size());
  return bytes;
}

bool is_bad(const std::vector<std::uint8_t>& bytes, std::shared_ptr<arrow::RecordBatch> batch, const char* needle) {
  const auto read = read_lookup(bytes.data(), bytes.size(), std::move(batch));
  const auto* bad = std::get_if<BadMessage>(&read);
  return bad != nullptr && bad->reason.find(needle) != std::string::npos;
}

void test_good() {
  LookupHeader header;
  header.lookup = 7;
  header.ids = 3;
  const auto bytes = metadata(header, "item");
  const auto read = read_lookup(bytes.data(), bytes.size(), ids_batch({5, -1, 9}));
  const auto* message = std::get_if<LookupMessage>(&read);
  CHECK(message != nullptr && message->table == "item" && message->header.lookup == 7);
  CHECK(message != nullptr && message->ids[0] == 5 && message->ids[1] == -1 && message->ids[2] == 9);
  header.ids = 0;
  const auto empty = metadata(header, "item");
  CHECK(std::holds_alternative<LookupMessage>(read_lookup(empty.data(), empty.size(), nullptr)));
}

// A batch may lie at any address; its ids are read at one that int64 may have.
void test_odd_addresses() {
  LookupHeader header;
  header.ids = 3;
  const auto bytes = metadata(header, "item");
  const std::int64_t ids[] = {5, -1, 9};
  for (std::int64_t shift = 0; shift < 8; ++shift) {
    const auto memory = std::shared_ptr<arrow::Buffer>(arrow::AllocateBuffer(64).ValueOrDie());
    std::memcpy(memory->mutable_data() + shift, ids, sizeof ids);
    const auto data = arrow::ArrayData::Make(arrow::int64(), 3, {nullptr, arrow::SliceBuffer(memory, shift, 24)}, 0);
    const auto read = read_lookup(bytes.data(), bytes.size(),
                                  arrow::RecordBatch::Make(ids_batch({1})->schema(), 3, {data}));
    const auto* message = std::get_if<LookupMessage>(&read);
    CHECK(message != nullptr && reinterpret_cast<std::uintptr_t>(message->ids) % alignof(std::int64_t) == 0);
    CHECK(message != nullptr && std::memcmp(message->ids, ids, sizeof ids) == 0);
  }
}

void test_bad_headers() {
  LookupHeader header;
  header.ids = 1;
  const auto good = metadata(header, "item");
  CHECK(is_bad({good.begin(), good.begin() + 51}, nullptr, "at least 52"));
  CHECK(is_bad({good.begin(), good.end() - 1}, nullptr, "the metadata's length"));
  CHECK(is_bad(metadata(header, ""), nullptr, "name_bytes"));
  CHECK(is_bad(good, nullptr, "no batch"));
  LookupHeader other = header;
  other.magic = 1;
  CHECK(is_bad(metadata(other, "item"), nullptr, "magic"));
  other = header;
  other.format = 9;
  CHECK(is_bad(metadata(other, "item"), nullptr, "format"));
  other = header;
  other.wire = static_cast<WireType>(4);
  CHECK(is_bad(metadata(other, "item"), nullptr, "wire"));
  other = header;
  other.ids = kIdsPerLookupMax + 1;
  CHECK(is_bad(metadata(other, "item"), nullptr, "ids is 1048577"));
}

void test_bad_batches() {
  LookupHeader header;
  header.ids = 2;
  const auto bytes = metadata(header, "item");
  CHECK(is_bad(bytes, ids_batch({1}), "number of ids"));
  CHECK(is_bad(bytes, ids_batch({1, 2}, true), "nulls"));
  const auto ids = ids_batch({1, 2});
  CHECK(is_bad(bytes, ids->AddColumn(1, "more", ids->column(0)).ValueOrDie(), "columns"));
  const auto floats = arrow::RecordBatch::Make(
      arrow::schema({arrow::field("id", arrow::float64())}), 2,
      {arrow::MakeArrayFromScalar(arrow::DoubleScalar(1.0), 2).ValueOrDie()});
  CHECK(is_bad(bytes, floats, "expected int64"));
  // A column that claims more than its buffer holds.
  const auto data = arrow::ArrayData::Make(arrow::int64(), 2, {nullptr, arrow::Buffer::FromString("12345678")}, 0);
  CHECK(is_bad(bytes, arrow::RecordBatch::Make(ids->schema(), 2, {data}), "damaged"));
}

void test_noise() {
  std::mt19937_64 random(3);
  LookupHeader header;
  header.ids = 2;
  const auto good = metadata(header, "item");
  const auto batch = ids_batch({1, 2});
  for (int i = 0; i < 20000; ++i) {
    auto bytes = good;
    bytes.resize(random() % 70);
    for (int flips = static_cast<int>(random() % 4); flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] ^= static_cast<std::uint8_t>(1u << (random() % 8));
    }
    const auto read = read_lookup(bytes.data(), bytes.size(), random() % 2 ? batch : nullptr);
    if (const auto* message = std::get_if<LookupMessage>(&read)) {
      CHECK(message->header.ids == 0 || message->ids[1] == 2);
    }
  }
}

}  // namespace

void test_lookup_messages() {
  test_good();
  test_odd_addresses();
  test_bad_headers();
  test_bad_batches();
  test_noise();
}

}  // namespace paramserver::flight
