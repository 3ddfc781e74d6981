// Runs the C++ tests of the wire: one binary, a function per file of them.
#include "paramserver/csrc/flight/flight_test.h"

#include "paramserver/csrc/check.h"

int main() {
  paramserver::flight::test_client();
  paramserver::flight::test_lookup_messages();
  paramserver::flight::test_shard_state();
  paramserver::flight::test_shard_server();
  return paramserver::check_failures == 0 ? 0 : 1;
}
