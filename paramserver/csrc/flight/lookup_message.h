// Reads one message of a lookup stream (wire.h) and says what is wrong with it. The bytes are a stranger's: every field
// is checked against what came, and nothing is trusted before.
//
// Thread-safety: a pure function. Ownership: a LookupMessage keeps the batch, or a copy of ids that came at an odd
// address, so its ids stay readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "paramserver/csrc/flight/wire.h"

namespace arrow {
class RecordBatch;
}

namespace paramserver::flight {

struct LookupMessage {
  LookupHeader header;
  std::string table;
  std::shared_ptr<const void> memory;  // what `ids` lie in; null when there are none
  const std::int64_t* ids = nullptr;   // [header.ids], aligned as int64 wants it
};

// Why a message is no lookup. `lookup` is the client's number when the header could be read, else 0.
struct BadMessage {
  std::uint64_t lookup = 0;
  std::string reason;
};

std::variant<LookupMessage, BadMessage> read_lookup(const std::uint8_t* metadata /*[bytes]*/, std::size_t bytes,
                                                    std::shared_ptr<arrow::RecordBatch> batch);

}  // namespace paramserver::flight
