// The C++ tests of the wire, one function per file; each reports with CHECK (check.h).
#pragma once

namespace paramserver::flight {

void test_lookup_messages();

}  // namespace paramserver::flight
