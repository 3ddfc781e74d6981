// The Python face of the shard server. Holds no logic.
#include "paramserver/csrc/flight/bindings_flight.h"
#include "paramserver/csrc/flight/wire.h"

namespace paramserver::flight {

void bind_server(nanobind::module_& m) { m.attr("WIRE_FORMAT") = kWireFormat; }

}  // namespace paramserver::flight
