// Refuses calls without a bearer token that the server knows, before anything of the call is read.
//
// Lookups and control may have tokens of their own; whoever may control may look up. Comparison takes the same time
// whatever the token, so that it cannot be guessed byte by byte.
// Thread-safety: immutable after construction, but for the counter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paramserver/csrc/flight/shard_counters.h"

namespace arrow::flight {
class ServerMiddlewareFactory;
}

namespace paramserver::flight {

struct Tokens {
  std::vector<std::string> lookup;   // empty together with `control`: no token is asked for
  std::vector<std::string> control;  // empty: those of lookups control too
};

// Null when no token is configured.
std::shared_ptr<arrow::flight::ServerMiddlewareFactory> token_check(Tokens tokens, Counter& refused);

}  // namespace paramserver::flight
