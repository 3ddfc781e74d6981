// The Python face of the wire: the shard server and the client of shards.
#include "paramserver/csrc/flight/bindings_flight.h"

#include "paramserver/csrc/bindings_arrays.h"

namespace nb = nanobind;

namespace paramserver::flight {
NB_MODULE(_flight, m) {
  nb::register_exception_translator(&translate);
  bind_server(m);
  bind_client(m);
}

}  // namespace paramserver::flight
