#include "paramserver/csrc/flight/lookup_message.h"

#include <arrow/api.h>

#include <cstring>
#include <utility>
#include <vector>

namespace paramserver::flight {
namespace {

std::string of_expected(const char* field, std::uint64_t came, const std::string& expected) {
  return std::string(field) + " is " + std::to_string(came) + ", expected " + expected;
}

std::string header_problem(const LookupHeader& header, std::size_t bytes) {
  if (header.magic != kWireMagic) return of_expected("magic", header.magic, std::to_string(kWireMagic));
  if (header.format != kWireFormat) return of_expected("format", header.format, std::to_string(kWireFormat));
  if (header.wire > WireType::kInt8) {
    return of_expected("wire", static_cast<std::uint64_t>(header.wire), "0 to 3 (f32, f16, bf16, int8)");
  }
  if (header.name_bytes == 0) return "name_bytes is 0, expected the length of a table's name";
  if (bytes != sizeof header + header.name_bytes) {
    return of_expected("the metadata's length", bytes, std::to_string(sizeof header + header.name_bytes) +
                                                           ": the header and the table's name");
  }
  if (header.ids > kIdsPerLookupMax) {
    return of_expected("ids", header.ids, "at most " + std::to_string(kIdsPerLookupMax));
  }
  return {};
}

std::string batch_problem(const arrow::RecordBatch& batch, std::uint32_t ids) {
  if (batch.num_columns() != 1) {
    return of_expected("the number of columns", static_cast<std::uint64_t>(batch.num_columns()), "1, the ids");
  }
  if (batch.num_rows() != ids) {
    return of_expected("the number of ids", static_cast<std::uint64_t>(batch.num_rows()),
                       std::to_string(ids) + " as in the header");
  }
  if (batch.schema()->field(0)->type()->id() != arrow::Type::INT64) {
    return "the ids are " + batch.schema()->field(0)->type()->ToString() + ", expected int64";
  }
  // Of a column that came over the wire, lengths and offsets are claims until compared with its buffers.
  if (const arrow::Status valid = batch.Validate(); !valid.ok()) return "the batch is damaged: " + valid.message();
  if (batch.column(0)->null_count() != 0) return "the ids have nulls";
  return {};
}

// The transport leaves a batch where its bytes arrived, which may be any address.
void take_ids(std::shared_ptr<arrow::RecordBatch> batch, LookupMessage* message) {
  const std::int64_t* ids = std::static_pointer_cast<arrow::Int64Array>(batch->column(0))->raw_values();
  if (reinterpret_cast<std::uintptr_t>(ids) % alignof(std::int64_t) == 0) {
    message->ids = ids;
    message->memory = std::move(batch);
    return;
  }
  auto copy = std::make_shared<std::vector<std::int64_t>>(message->header.ids);
  std::memcpy(copy->data(), ids, copy->size() * sizeof(std::int64_t));
  message->ids = copy->data();
  message->memory = std::move(copy);
}

}  // namespace

std::variant<LookupMessage, BadMessage> read_lookup(const std::uint8_t* metadata, std::size_t bytes,
                                                    std::shared_ptr<arrow::RecordBatch> batch) {
  LookupMessage message;
  if (bytes < sizeof message.header) {
    return BadMessage{0, of_expected("the metadata's length", bytes,
                                     "at least " + std::to_string(sizeof message.header) + ", a lookup's header")};
  }
  std::memcpy(&message.header, metadata, sizeof message.header);
  const LookupHeader& header = message.header;
  std::string problem = header_problem(header, bytes);
  if (problem.empty() && batch == nullptr && header.ids > 0) problem = "the message has no batch of ids";
  if (problem.empty() && batch != nullptr) problem = batch_problem(*batch, header.ids);
  if (!problem.empty()) return BadMessage{header.lookup, std::move(problem)};
  message.table.assign(reinterpret_cast<const char*>(metadata) + sizeof header, header.name_bytes);
  if (header.ids > 0) take_ids(std::move(batch), &message);
  return message;
}

}  // namespace paramserver::flight
