#include "paramserver/csrc/flight/control.h"

#include <arrow/api.h>
#include <arrow/flight/api.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/byte_size.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace paramserver::flight {
namespace {

constexpr std::int64_t kMessageBytes = 16 << 20;  // of a download's message; one row at least

arrow::Status copy_batches(arrow::flight::FlightMessageReader& reader, const std::string& path,
                           const SpoolBounds& bounds) {
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
    const std::int64_t more = arrow::util::TotalBufferSize(*chunk.data);
    bytes += more;
    if (bytes > bounds.bytes_max) {
      return arrow::Status::Invalid("the upload has more than ", bounds.bytes_max,
                                    " bytes: split it, or raise upload_bytes_max in the server's configuration");
    }
    ARROW_RETURN_NOT_OK(expect_space(path, more, bounds.reserve_bytes));
    ARROW_RETURN_NOT_OK(writer->WriteRecordBatch(*chunk.data));
  }
  ARROW_RETURN_NOT_OK(writer->Close());
  return file->Close();
}

std::int64_t rows_per_message(const arrow::RecordBatch& batch) {
  const std::int64_t row_bytes = arrow::util::TotalBufferSize(batch) / std::max<std::int64_t>(batch.num_rows(), 1) + 1;
  return std::max<std::int64_t>(kMessageBytes / row_bytes, 1);
}

}  // namespace

arrow::Status status_of(const ControlReply& reply) {
  using arrow::flight::FlightStatusCode;
  const FlightStatusCode code = reply.outcome == ControlOutcome::kCallerError      ? FlightStatusCode::Failed
                                : reply.outcome == ControlOutcome::kOperatingError ? FlightStatusCode::Unavailable
                                                                                   : FlightStatusCode::Internal;
  return arrow::flight::MakeFlightError(code, reply.json, reply.json);
}

arrow::Status expect_space(const std::string& path, std::int64_t bytes, std::int64_t reserve_bytes) {
  struct statvfs disk {};
  if (::statvfs(path.c_str(), &disk) != 0) {
    return arrow::Status::IOError("statvfs of ", path, ": ", std::strerror(errno));
  }
  const auto free = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  if (free >= bytes && free - bytes >= reserve_bytes) return arrow::Status::OK();
  return status_of({ControlOutcome::kOperatingError,
                    R"({"error": "StoreFull", "message": "the server's disk has )" + std::to_string(free) +
                        " bytes free, " + std::to_string(bytes) + " needed and " + std::to_string(reserve_bytes) +
                        R"( kept in reserve; nothing was taken: free space and send it again"})"});
}

arrow::Status spool(arrow::flight::FlightMessageReader& reader, const std::string& path, const SpoolBounds& bounds) {
  arrow::Status copied = copy_batches(reader, path, bounds);
  if (!copied.ok()) std::remove(path.c_str());
  return copied;
}

arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> open_batches(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
  ARROW_ASSIGN_OR_RAISE(const auto reader, arrow::ipc::RecordBatchFileReader::Open(file));
  arrow::RecordBatchVector batches;
  for (int i = 0; i < reader->num_record_batches(); ++i) {
    ARROW_ASSIGN_OR_RAISE(const auto batch, reader->ReadRecordBatch(i));
    const std::int64_t rows = rows_per_message(*batch);
    for (std::int64_t at = 0; at < batch->num_rows(); at += rows) batches.push_back(batch->Slice(at, rows));
  }
  return arrow::RecordBatchReader::Make(std::move(batches), reader->schema());
}

}  // namespace paramserver::flight
