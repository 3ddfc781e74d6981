#include "paramserver/csrc/flight/answer_writer.h"

#include <arrow/api.h>
#include <arrow/flight/api.h>

#include <cstring>
#include <utility>

namespace paramserver::flight {
namespace {

// One binary value that is the whole of `bytes`; its offsets {0, size} are a buffer of their own.
std::shared_ptr<arrow::ArrayData> one_value(std::shared_ptr<arrow::Buffer> bytes) {
  const std::int32_t offsets[2] = {0, static_cast<std::int32_t>(bytes->size())};
  auto offsets_buffer =
      arrow::Buffer::FromString(std::string(reinterpret_cast<const char*>(offsets), sizeof offsets));
  return arrow::ArrayData::Make(arrow::binary(), 1, {nullptr, std::move(offsets_buffer), std::move(bytes)}, 0);
}

std::shared_ptr<arrow::Buffer> metadata_of(const AnswerHeader& header, const std::string& message) {
  std::string bytes(sizeof header + message.size(), '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  std::memcpy(bytes.data() + sizeof header, message.data(), message.size());
  return arrow::Buffer::FromString(std::move(bytes));
}

}  // namespace

const std::shared_ptr<arrow::Schema>& answer_schema() {
  static const auto schema = arrow::schema({arrow::field("rows", arrow::binary(), false),
                                            arrow::field("statuses", arrow::binary(), false)});
  return schema;
}

void AnswerWriter::begin() {
  const std::lock_guard lock(mutex_);
  note(writer_.Begin(answer_schema()));
}

void AnswerWriter::send(const AnswerHeader& header, std::shared_ptr<arrow::Buffer> rows,
                        std::shared_ptr<arrow::Buffer> statuses) {
  const auto batch = arrow::RecordBatch::Make(answer_schema(), 1,
                                              {one_value(std::move(rows)), one_value(std::move(statuses))});
  auto metadata = metadata_of(header, {});
  const std::lock_guard lock(mutex_);
  note(writer_.WriteWithMetadata(*batch, std::move(metadata)));
}

void AnswerWriter::refuse(AnswerHeader header, const std::string& reason) {
  header.message_bytes = static_cast<std::uint32_t>(reason.size());
  auto metadata = metadata_of(header, reason);
  const std::lock_guard lock(mutex_);
  note(writer_.WriteMetadata(std::move(metadata)));
}

void AnswerWriter::note(const arrow::Status& status) noexcept {
  if (!status.ok()) set_gone();
}

}  // namespace paramserver::flight
