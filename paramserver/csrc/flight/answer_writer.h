// Writes the answers of one lookup stream.
//
// Thread-safety: answers of several lookups may be written at once; each message goes out whole. A client that does
// not read makes writers wait, which is why every stream has threads of its own.
// Ownership: the Flight writer must outlive this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "paramserver/csrc/flight/wire.h"

namespace arrow {
class Buffer;
class Schema;
class Status;
namespace flight {
class FlightMessageWriter;
}
}  // namespace arrow

namespace paramserver::flight {

// The schema of every answer stream: {rows: binary, statuses: binary}.
const std::shared_ptr<arrow::Schema>& answer_schema();

class AnswerWriter {
 public:
  explicit AnswerWriter(arrow::flight::FlightMessageWriter& writer) : writer_(writer) {}

  // Sends the schema, which must precede every answer.
  void begin();
  // One chunk: `rows` holds count rows of the wire type, `statuses` count bytes.
  void send(const AnswerHeader& header, std::shared_ptr<arrow::Buffer> rows, std::shared_ptr<arrow::Buffer> statuses);
  // Ends a lookup with a reason; `header.code` says which.
  void refuse(AnswerHeader header, const std::string& reason);

  // The stream is broken or over: nobody reads what is still sent. Lookups take it as their cancel flag.
  const std::atomic<bool>& gone() const noexcept { return gone_; }
  void set_gone() noexcept { gone_.store(true, std::memory_order_relaxed); }

 private:
  void note(const arrow::Status& status) noexcept;

  arrow::flight::FlightMessageWriter& writer_;
  std::mutex mutex_;
  std::atomic<bool> gone_{false};
};

}  // namespace paramserver::flight
