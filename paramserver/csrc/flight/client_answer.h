// Reads one message of an answer stream (wire.h). The bytes come from another process: every length is checked against
// what came before a row is pointed at.
//
// Thread-safety: pure functions. Ownership: a Chunk keeps the batch, so its rows and statuses stay readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "paramserver/csrc/flight/wire.h"

namespace arrow {
class Buffer;
class RecordBatch;
}  // namespace arrow

namespace paramserver::flight {

struct Chunk {
  AnswerHeader header;
  std::string message;                        // why, when header.code is not kOk
  std::shared_ptr<arrow::RecordBatch> batch;  // null when there are no rows
  const std::byte* rows = nullptr;            // [header.count, wire_row_bytes]
  const std::uint8_t* statuses = nullptr;     // [header.count]
};

// Why a message is no answer. `lookup` is the number it names when that could be read, else 0.
struct BadAnswer {
  std::uint64_t lookup = 0;
  std::string reason;
};

std::variant<Chunk, BadAnswer> read_answer(const arrow::Buffer* metadata, std::shared_ptr<arrow::RecordBatch> batch);

}  // namespace paramserver::flight
