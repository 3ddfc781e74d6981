// What the files of bindings add to the extension module, one function each. Called once, with the GIL.
#pragma once

#include <nanobind/nanobind.h>

namespace paramserver {

void bind_mapped(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_snapshot(nanobind::module_& module);
void bind_tier(nanobind::module_& module);

}  // namespace paramserver
