#include "paramserver/csrc/flight/client_answer.h"

#include <arrow/api.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "paramserver/csrc/flight/binary_value.h"

namespace paramserver::flight {
namespace {

std::string expected(const char* what, std::uint64_t came, std::uint64_t want) {
  return std::string(what) + " is " + std::to_string(came) + ", expected " + std::to_string(want);
}

// The bytes of the one value of column `i`, or a reason in `problem`.
std::string_view value_of(const arrow::RecordBatch& batch, int i, std::string* problem) {
  const arrow::Array& column = *batch.column(i);
  if (column.type_id() != arrow::Type::BINARY || column.null_count() != 0) {
    *problem = "column " + std::to_string(i) + " is " + column.type()->ToString() + ", expected one binary value";
    return {};
  }
  return binary_value(column);
}

std::string read_rows(Chunk* chunk) {
  const arrow::RecordBatch& batch = *chunk->batch;
  if (batch.num_columns() != 2) {
    return expected("the number of columns", static_cast<std::uint64_t>(batch.num_columns()), 2);
  }
  if (batch.num_rows() != 1) return expected("the number of values", static_cast<std::uint64_t>(batch.num_rows()), 1);
  // Of a column that came over the wire, lengths and offsets are claims until compared with its buffers.
  if (const arrow::Status valid = batch.ValidateFull(); !valid.ok()) return "damaged: " + valid.message();
  std::string problem;
  const std::string_view rows = value_of(batch, 0, &problem);
  const std::string_view statuses = problem.empty() ? value_of(batch, 1, &problem) : std::string_view();
  if (!problem.empty()) return problem;
  const std::size_t want = std::size_t{chunk->header.count} * wire_row_bytes(chunk->header.wire, chunk->header.dim);
  if (rows.size() != want) return expected("the bytes of the rows", rows.size(), want);
  if (statuses.size() != chunk->header.count) {
    return expected("the number of statuses", statuses.size(), chunk->header.count);
  }
  chunk->rows = reinterpret_cast<const std::byte*>(rows.data());
  chunk->statuses = reinterpret_cast<const std::uint8_t*>(statuses.data());
  return {};
}

}  // namespace

std::variant<Chunk, BadAnswer> read_answer(const arrow::Buffer* metadata, std::shared_ptr<arrow::RecordBatch> batch) {
  const std::size_t bytes = metadata == nullptr ? 0 : static_cast<std::size_t>(metadata->size());
  Chunk chunk;
  AnswerHeader& header = chunk.header;
  if (bytes < sizeof header) return BadAnswer{0, expected("the metadata's length", bytes, sizeof header)};
  std::memcpy(&header, metadata->data(), sizeof header);
  if (header.magic != kWireMagic) return BadAnswer{0, expected("magic", header.magic, kWireMagic)};
  if (header.format != kWireFormat) return BadAnswer{0, expected("format", header.format, kWireFormat)};
  if (bytes - sizeof header != header.message_bytes) {
    return BadAnswer{header.lookup, expected("message_bytes", header.message_bytes, bytes - sizeof header)};
  }
  if (header.wire > WireType::kInt8) {
    return BadAnswer{header.lookup, expected("wire", static_cast<std::uint64_t>(header.wire), 3) + " at most"};
  }
  chunk.message.assign(reinterpret_cast<const char*>(metadata->data()) + sizeof header, header.message_bytes);
  if (header.code != AnswerCode::kOk || header.count == 0) {
    header.count = 0;
    return chunk;
  }
  if (batch == nullptr) return BadAnswer{header.lookup, "an answer of rows has no batch"};
  chunk.batch = std::move(batch);
  std::string problem = read_rows(&chunk);
  if (!problem.empty()) return BadAnswer{header.lookup, std::move(problem)};
  return chunk;
}

}  // namespace paramserver::flight
