// The Python face of the wire: the shard server and the client of shards.
#include "paramserver/csrc/flight/bindings_flight.h"

#include "paramserver/csrc/error.h"

namespace nb = nanobind;

namespace paramserver::flight {
namespace {

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    PyErr_SetString(nb::module_::import_("paramserver.errors").attr(error.python_name()).ptr(), error.what());
  }
}

}  // namespace

NB_MODULE(_flight, m) {
  nb::register_exception_translator(&translate);
  bind_server(m);
  bind_client(m);
}

}  // namespace paramserver::flight
