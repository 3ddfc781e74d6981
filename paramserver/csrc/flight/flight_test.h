// The C++ tests of the wire, one function per file; each reports with CHECK (check.h).
#pragma once

namespace paramserver::flight {

void test_client();
void test_lookup_messages();
void test_shard_server();
void test_shard_state();

}  // namespace paramserver::flight
