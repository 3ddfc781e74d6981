#include "paramserver/csrc/flight/control.h"

#include <arrow/api.h>
#include <arrow/flight/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/byte_size.h>

#include <cstdio>
#include <utility>

namespace paramserver::flight {
namespace {

arrow::Status copy_batches(arrow::flight::FlightMessageReader& reader, const std::string& path,
                           std::int64_t bytes_max) {
  ARROW_ASSIGN_OR_RAISE(const auto schema, reader.GetSchema());
  ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::FileOutputStream::Open(path));
  ARROW_ASSIGN_OR_RAISE(const auto writer, arrow::ipc::MakeFileWriter(file, schema));
  std::int64_t bytes = 0;
  while (true) {
    ARROW_ASSIGN_OR_RAISE(const auto chunk, reader.Next());
    if (chunk.data == nullptr && chunk.app_metadata == nullptr) break;
    if (chunk.data == nullptr) continue;
    // The writer trusts offsets and lengths, which are a stranger's claims until here.
    ARROW_RETURN_NOT_OK(chunk.data->ValidateFull());
    bytes += arrow::util::TotalBufferSize(*chunk.data);
    if (bytes > bytes_max) {
      return arrow::Status::Invalid("the upload has more than ", bytes_max,
                                    " bytes: split it, or raise upload_bytes_max in the server's configuration");
    }
    ARROW_RETURN_NOT_OK(writer->WriteRecordBatch(*chunk.data));
  }
  ARROW_RETURN_NOT_OK(writer->Close());
  return file->Close();
}

}  // namespace

arrow::Status status_of(const ControlReply& reply) {
  using arrow::flight::FlightStatusCode;
  const FlightStatusCode code = reply.outcome == ControlOutcome::kCallerError      ? FlightStatusCode::Failed
                                : reply.outcome == ControlOutcome::kOperatingError ? FlightStatusCode::Unavailable
                                                                                   : FlightStatusCode::Internal;
  return arrow::flight::MakeFlightError(code, reply.json, reply.json);
}

arrow::Status spool(arrow::flight::FlightMessageReader& reader, const std::string& path, std::int64_t bytes_max) {
  arrow::Status copied = copy_batches(reader, path, bytes_max);
  if (!copied.ok()) std::remove(path.c_str());
  return copied;
}

arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> open_batches(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  ARROW_ASSIGN_OR_RAISE(const auto reader, arrow::ipc::RecordBatchFileReader::Open(file));
  arrow::RecordBatchVector batches;
  for (int i = 0; i < reader->num_record_batches(); ++i) {
    ARROW_ASSIGN_OR_RAISE(auto batch, reader->ReadRecordBatch(i));
    batches.push_back(std::move(batch));
  }
  return arrow::RecordBatchReader::Make(std::move(batches), reader->schema());
}

}  // namespace paramserver::flight
