// The Python face of the client of shards. Holds no logic.
#include "paramserver/csrc/flight/bindings_flight.h"
#include "paramserver/csrc/flight/wire.h"

namespace paramserver::flight {

void bind_client(nanobind::module_& m) { m.attr("IDS_PER_LOOKUP_MAX") = kIdsPerLookupMax; }

}  // namespace paramserver::flight
