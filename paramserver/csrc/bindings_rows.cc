// The Python face of the row formats, for paramserver/quantize.py, which checks every argument first.
#include <nanobind/nanobind.h>

#include "paramserver/csrc/bindings.h"
#include "paramserver/csrc/bindings_arrays.h"
#include "paramserver/csrc/kernels.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paramserver {
void bind_rows(nb::module_& m) {
  m.def("store_rows",
        [](int stored, Rows rows, OutBytes out) {
          store_rows(kernels(), static_cast<Stored>(stored), rows.data(), rows.shape(0), rows.shape(1),
                     reinterpret_cast<std::byte*>(out.data()));
        },
        "stored"_a, "rows"_a.noconvert(), "out"_a.noconvert(), Release());
  m.def("load_rows",
        [](int stored, StoredRows rows, OutRows out) {
          load_rows(kernels(), static_cast<Stored>(stored), reinterpret_cast<const std::byte*>(rows.data()),
                    out.shape(0), out.shape(1), out.data());
        },
        "stored"_a, "rows"_a.noconvert(), "out"_a.noconvert(), Release());
}

}  // namespace paramserver
