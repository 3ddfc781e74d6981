#include "paramserver/csrc/flight/shard_server.h"

#include <arrow/api.h>
#include <arrow/flight/api.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace paramserver::flight {
namespace {

namespace fl = arrow::flight;

fl::FlightServerOptions flight_options(const ShardOptions& options, Counter& refused) {
  const bool tls = !options.tls_certificate.empty();
  auto location = tls ? fl::Location::ForGrpcTls(options.host, options.port)
                      : fl::Location::ForGrpcTcp(options.host, options.port);
  if (!location.ok()) throw ListenError("cannot listen on " + options.host + ": " + location.status().message());
  fl::FlightServerOptions made(*location);
  if (tls) made.tls_certificates.push_back({options.tls_certificate, options.tls_key});
  made.verify_client = !options.tls_client_ca.empty();
  made.root_certificates = options.tls_client_ca;
  if (auto check = token_check(options.tokens, refused)) made.middleware.emplace_back("tokens", std::move(check));
  return made;
}

arrow::Status unavailable(const std::string& message) {
  const std::string json = R"({"error": "RemoteError", "message": ")" + message + R"("})";
  return fl::MakeFlightError(fl::FlightStatusCode::Unavailable, json, json);
}

// Counts a stream for as long as it is open.
class OpenStream {
 public:
  explicit OpenStream(ServerCounters& counters) : counters_(counters) {
    add(counters_.streams, 1);
    open_ = counters_.streams_open.fetch_add(1) + 1;
  }
  ~OpenStream() { counters_.streams_open.fetch_sub(1); }
  std::int64_t open() const noexcept { return open_; }

 private:
  ServerCounters& counters_;
  std::int64_t open_;
};

// One of a bounded number of transfers; `taken` is false where there are as many already.
struct Transfer {
  Transfer(std::atomic<std::int64_t>& open, std::int64_t open_max)
      : open_(open), taken(open_.fetch_add(1) < open_max) {}
  ~Transfer() { open_.fetch_sub(1); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

 private:
  std::atomic<std::int64_t>& open_;

 public:
  const bool taken;
};

// A file that is gone when the call that made it ends.
struct TemporaryFile {
  explicit TemporaryFile(std::string name) : path(std::move(name)) {}
  ~TemporaryFile() { std::remove(path.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string path;
};

}  // namespace

class ShardServer::Service final : public fl::FlightServerBase {
 public:
  Service(ShardServer& server, ShardOptions options)
      : server_(server),
        options_(std::move(options)),
        epoch_missing_([this] { ::eventfd_write(server_.epoch_missing_fd_, 1); }),
        context_{server.state_, server.counters_, epoch_missing_, std::chrono::milliseconds(options_.epoch_wait_ms)} {
    const arrow::Status listening = Init(flight_options(options_, server_.counters_.calls_unauthenticated));
    if (!listening.ok()) {
      throw ListenError("cannot listen on " + options_.host + ":" + std::to_string(options_.port) + ": " +
                        listening.message() + "; choose a free port and check the certificates");
    }
  }

  arrow::Status DoExchange(const fl::ServerCallContext&, std::unique_ptr<fl::FlightMessageReader> reader,
                           std::unique_ptr<fl::FlightMessageWriter> writer) override {
    const OpenStream stream(server_.counters_);
    if (server_.closing_) return unavailable("this server is closing");
    if (stream.open() > options_.streams_max) {
      return unavailable("this server has its maximum of " + std::to_string(options_.streams_max) + " streams open");
    }
    return LookupStream(context_, options_.bounds, server_.closing_, *reader, *writer).run();
  }

  arrow::Status DoAction(const fl::ServerCallContext&, const fl::Action& action,
                         std::unique_ptr<fl::ResultStream>* result) override {
    const std::string body = action.body == nullptr ? std::string() : action.body->ToString();
    if (body.size() > kActionBytesMax) return arrow::Status::Invalid("an action's body has at most 1 MiB");
    ControlReply reply = options_.control(action.type, body, {});
    if (reply.outcome != ControlOutcome::kOk) return status_of(reply);
    std::vector<fl::Result> results(1);
    results[0].body = arrow::Buffer::FromString(std::move(reply.json));
    *result = std::make_unique<fl::SimpleResultStream>(std::move(results));
    return arrow::Status::OK();
  }

  arrow::Status DoPut(const fl::ServerCallContext&, std::unique_ptr<fl::FlightMessageReader> reader,
                      std::unique_ptr<fl::FlightMetadataWriter> writer) override {
    const std::string command = reader->descriptor().cmd;
    if (command.size() > kActionBytesMax) return arrow::Status::Invalid("an upload's command has at most 1 MiB");
    const Transfer transfer(transfers_open_, options_.transfers_max);
    if (!transfer.taken) return too_many_transfers();
    const TemporaryFile file(new_path());
    ARROW_RETURN_NOT_OK(spool(*reader, file.path, {options_.upload_bytes_max, options_.reserve_bytes}));
    const ControlReply reply = options_.control("upload", command, file.path);
    if (reply.outcome != ControlOutcome::kOk) return status_of(reply);
    return writer->WriteMetadata(*arrow::Buffer::FromString(reply.json));
  }

  arrow::Status DoGet(const fl::ServerCallContext&, const fl::Ticket& ticket,
                      std::unique_ptr<fl::FlightDataStream>* stream) override {
    if (ticket.ticket.size() > kActionBytesMax) return arrow::Status::Invalid("a ticket has at most 1 MiB");
    const Transfer transfer(transfers_open_, options_.transfers_max);
    if (!transfer.taken) return too_many_transfers();
    const TemporaryFile file(new_path());
    const ControlReply reply = options_.control("download", ticket.ticket, file.path);
    if (reply.outcome != ControlOutcome::kOk) return status_of(reply);
    ARROW_ASSIGN_OR_RAISE(const auto batches, open_batches(file.path));
    *stream = std::make_unique<fl::RecordBatchStream>(batches);
    return arrow::Status::OK();
  }

 private:
  arrow::Status too_many_transfers() const {
    return unavailable("this server has its maximum of " + std::to_string(options_.transfers_max) +
                       " uploads and downloads at once: try again");
  }

  std::string new_path() {
    return options_.upload_directory + "/transfer-" + std::to_string(::getpid()) + "-" +
           std::to_string(transfers_.fetch_add(1)) + ".arrow";
  }

  ShardServer& server_;
  const ShardOptions options_;
  const std::function<void()> epoch_missing_;
  const AnswerContext context_;
  std::atomic<std::uint64_t> transfers_{0};
  std::atomic<std::int64_t> transfers_open_{0};
};

ShardServer::ShardServer(ShardOptions options) : state_(options.place) {
  epoch_missing_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (epoch_missing_fd_ < 0) throw ListenError(std::string("no eventfd: ") + std::strerror(errno));
  try {
    service_ = std::make_unique<Service>(*this, std::move(options));
  } catch (...) {
    ::close(epoch_missing_fd_);
    throw;
  }
  port_ = service_->port();
}

ShardServer::~ShardServer() {
  stop(std::chrono::milliseconds(0));
  service_.reset();
  ::close(epoch_missing_fd_);
}

void ShardServer::stop(std::chrono::milliseconds drain) {
  const std::lock_guard lock(stopping_);
  if (std::exchange(stopped_, true)) return;
  closing_ = true;
  counters_.lookups.wait_for_none(std::chrono::steady_clock::now() + drain);
  // Streams stay open as long as their clients like; this ends them.
  const auto now = std::chrono::system_clock::now();
  const arrow::Status down = service_->Shutdown(&now);
  if (!down.ok()) std::fprintf(stderr, "paramserver: the server did not shut down: %s\n", down.ToString().c_str());
}

}  // namespace paramserver::flight
