// The server of one shard: lookups over DoExchange (wire.h), the control plane over DoAction and DoPut (control.h).
//
// Thread-safety: all methods. A lookup touches no Python and no lock that publishing holds for longer than a pointer's
// copy. Ownership: stop() ends every call before it returns; the destructor stops.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/flight/bearer_tokens.h"
#include "paramserver/csrc/flight/control.h"
#include "paramserver/csrc/flight/lookup_stream.h"
#include "paramserver/csrc/flight/shard_state.h"

namespace paramserver::flight {

// Operating fault: the server cannot listen where it should.
class ListenError final : public Error {
 public:
  using Error::Error;
  const char* python_name() const noexcept override { return "OperatingError"; }
};

struct ShardOptions {
  std::string host = "127.0.0.1";
  int port = 0;                             // 0: any free one
  std::string tls_certificate;              // PEM; empty: no TLS
  std::string tls_key;                      // PEM
  std::string tls_client_ca;                // PEM; empty: clients need no certificate
  Tokens tokens;
  StreamBounds bounds;
  std::int64_t streams_max = 256;           // open at once
  std::int64_t epoch_wait_ms = 50;          // a lookup for a newer epoch than is served waits so long for it
  std::int64_t transfers_max = 8;           // uploads and downloads at once, each a file
  std::int64_t reserve_bytes = 0;           // of disk space, which uploads leave free
  std::int64_t upload_bytes_max = 1 << 30;  // of one upload
  std::string upload_directory;             // where uploads are written; must exist
  ControlHandler control;
  Place place;
};

class ShardServer {
 public:
  // Listens. Throws ListenError.
  explicit ShardServer(ShardOptions options);
  ~ShardServer();

  int port() const noexcept { return port_; }
  ShardState& state() noexcept { return state_; }
  const ServerCounters& counters() const noexcept { return counters_; }

  // An eventfd that becomes readable when a lookup names an epoch newer than all served. Owned by the server.
  int epoch_missing_fd() const noexcept { return epoch_missing_fd_; }

  // Refuses new lookups, waits up to `drain` for those in flight, then ends every stream. Later calls do nothing.
  void stop(std::chrono::milliseconds drain);

 private:
  class Service;

  ShardState state_;
  ServerCounters counters_;
  std::atomic<bool> closing_{false};
  int epoch_missing_fd_ = -1;
  int port_ = 0;
  std::mutex stopping_;
  bool stopped_ = false;
  std::unique_ptr<Service> service_;
};

}  // namespace paramserver::flight
