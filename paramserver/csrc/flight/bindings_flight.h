// What the extension module _flight is made of: each part adds its classes to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace paramserver::flight {

void bind_server(nanobind::module_& m);
void bind_client(nanobind::module_& m);

}  // namespace paramserver::flight
