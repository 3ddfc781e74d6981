// The control plane's border: actions and uploads come in as JSON and files, and are handed to one function that Python
// provides. They share nothing with lookups but the server's port.
//
// An action's body is a JSON object, and so is its one result. An upload is a Flight stream whose descriptor's command
// is a JSON object with the member "action"; its batches are written to a file first, within a bound, and the file is
// gone when the call ends. A download is a ticket of the same form; the function writes the file, whose batches are
// streamed. A failure's Flight status carries a JSON object {"error": class of paramserver/errors.py,
// "message": ...} as its extra info.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace arrow {
class RecordBatchReader;
class Status;
template <class T>
class Result;
namespace flight {
class FlightMessageReader;
}
}  // namespace arrow

namespace paramserver::flight {

inline constexpr std::size_t kActionBytesMax = 1 << 20;  // of an action's body and of an upload's command

enum class ControlOutcome : int { kOk = 0, kCallerError = 1, kOperatingError = 2, kInternal = 3 };

struct ControlReply {
  ControlOutcome outcome = ControlOutcome::kInternal;
  std::string json;
};

// Called by many threads at once, off the lookup threads. `action` is the action's name and `file` empty; or `action`
// is "upload" and `file` what came; or it is "download" and `file` what to write. Must not throw.
using ControlHandler =
    std::function<ControlReply(const std::string& action, const std::string& json, const std::string& file)>;

// The Flight status of a reply that is no success.
arrow::Status status_of(const ControlReply& reply);

struct SpoolBounds {
  std::int64_t bytes_max = 0;      // of one stream
  std::int64_t reserve_bytes = 0;  // that stay free on the disk
};

// Unavailable, with StoreFull as its class, unless `bytes` fit on a path's disk beside the reserve.
arrow::Status expect_space(const std::string& path, std::int64_t bytes, std::int64_t reserve_bytes);

// Writes the stream to an Arrow IPC file, schema metadata included. Invalid when a batch is damaged or the stream is
// longer than its bound, as expect_space when the disk is full; the file is then removed.
arrow::Status spool(arrow::flight::FlightMessageReader& reader, const std::string& path, const SpoolBounds& bounds);

// The batches of an Arrow IPC file, mapped: they outlive the file's name. Long ones come in parts, since Flight
// sends no message of 2 GiB.
arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> open_batches(const std::string& path);

}  // namespace paramserver::flight
