// The Python face of mapped tables. Holds no logic: paramserver/mapped.py checks every argument before it comes here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "paramserver/csrc/bindings.h"
#include "paramserver/csrc/bindings_arrays.h"
#include "paramserver/csrc/mapped_table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paramserver {
namespace {

std::shared_ptr<MappedTable> open_mapped(const std::string& path, const std::optional<std::string>& instruction_set) {
  return std::make_shared<MappedTable>(path, instruction_set ? &choose_kernels(instruction_set->c_str()) : nullptr);
}

}  // namespace

void bind_mapped(nb::module_& m) {
  nb::class_<MappedTable> bound(m, "MappedTable");
  bind_lookups(bound);
  bound
      .def(nb::new_(&open_mapped), "path"_a, "instruction_set"_a.none())
      .def("name", &MappedTable::name)
      .def("dim", &MappedTable::dim)
      .def("stored", [](const MappedTable& t) { return static_cast<int>(t.stored()); })
      .def("epoch", &MappedTable::epoch, Release())
      .def("epochs", &MappedTable::epochs, Release())
      .def("holds", &MappedTable::holds, "epoch"_a, Release())
      .def("owner_alive", &MappedTable::owner_alive, Release())
      .def("capsule", &row_source<MappedTable>)
      .def("stats", [](const MappedTable& t) {
        const StatusTally sums = t.counters().sum();
        return nb::make_tuple(t.instruction_set(), t.retries(), t.counters().lookups(),
                              std::vector<std::uint64_t>(sums.begin(), sums.end()));
      });
}

}  // namespace paramserver
