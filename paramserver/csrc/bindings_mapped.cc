// The Python face of mapped tables. Holds no logic: paramserver/mapped.py checks every argument before it comes here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "paramserver/csrc/bindings.h"
#include "paramserver/csrc/mapped_table.h"
#include "paramserver/csrc/table.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paramserver {
namespace {

using Ids = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutBytes = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutRow = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Statuses = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Release = nb::call_guard<nb::gil_scoped_release>;

RowStatus* statuses(const std::optional<Statuses>& status) {
  return status ? reinterpret_cast<RowStatus*>(status->data()) : nullptr;
}

std::shared_ptr<MappedTable> open_mapped(const std::string& path, const std::optional<std::string>& instruction_set) {
  return std::make_shared<MappedTable>(path, instruction_set ? &choose_kernels(instruction_set->c_str()) : nullptr);
}

nb::capsule row_source(const MappedTable& table) {
  auto* source = new std::shared_ptr<const RowSource>(table.shared_from_this());
  return nb::capsule(source, kRowSourceCapsule,
                     [](void* p) noexcept { delete static_cast<std::shared_ptr<const RowSource>*>(p); });
}

}  // namespace

void bind_mapped(nb::module_& m) {
  nb::class_<MappedTable>(m, "MappedTable")
      .def(nb::new_(&open_mapped), "path"_a, "instruction_set"_a.none())
      .def("name", &MappedTable::name)
      .def("dim", &MappedTable::dim)
      .def("stored", [](const MappedTable& t) { return static_cast<int>(t.stored()); })
      .def("row_bytes", &MappedTable::row_bytes)
      .def("epoch", &MappedTable::epoch, Release())
      .def("epochs", &MappedTable::epochs, Release())
      .def("holds", &MappedTable::holds, "epoch"_a, Release())
      .def("owner_alive", &MappedTable::owner_alive, Release())
      .def("default_row", [](const MappedTable& t, OutRow out) { t.default_row(out.data()); }, "out"_a.noconvert())
      .def("lookup",
           [](const MappedTable& t, Ids ids, int out_type, OutBytes out, std::optional<Statuses> status,
              std::uint64_t epoch, std::int64_t deadline_ns) {
             t.lookup({epoch, deadline_ns}, ids.data(), ids.size(), static_cast<RowType>(out_type), out.data(),
                      statuses(status));
           },
           "ids"_a.noconvert(), "out_type"_a, "out"_a.noconvert(), "status"_a.noconvert().none(), "epoch"_a,
           "deadline_ns"_a, Release())
      .def("lookup_pooled",
           [](const MappedTable& t, Ids ids, Offsets offsets, int mode, std::optional<Weights> weights, int out_type,
              OutBytes out, std::optional<Statuses> status, std::uint64_t epoch, std::int64_t deadline_ns) {
             check_bags(offsets.data(), offsets.size() - 1, ids.size());
             t.lookup_pooled({epoch, deadline_ns}, ids.data(), offsets.data(), offsets.size() - 1,
                             static_cast<Pooling>(mode), weights ? weights->data() : nullptr,
                             static_cast<RowType>(out_type), out.data(), statuses(status));
           },
           "ids"_a.noconvert(), "offsets"_a.noconvert(), "mode"_a, "weights"_a.noconvert().none(), "out_type"_a,
           "out"_a.noconvert(), "status"_a.noconvert().none(), "epoch"_a, "deadline_ns"_a, Release())
      .def("lookup_stored",
           [](const MappedTable& t, Ids ids, OutBytes out, std::optional<Statuses> status, std::uint64_t epoch) {
             t.lookup_stored({.epoch = epoch}, ids.data(), ids.size(), reinterpret_cast<std::byte*>(out.data()),
                             statuses(status));
           },
           "ids"_a.noconvert(), "out"_a.noconvert(), "status"_a.noconvert().none(), "epoch"_a, Release())
      .def("capsule", &row_source)
      .def("stats", [](const MappedTable& t) {
        const StatusTally sums = t.counters().sum();
        return nb::make_tuple(t.instruction_set(), t.retries(), t.counters().lookups(),
                              std::vector<std::uint64_t>(sums.begin(), sums.end()));
      });
}

}  // namespace paramserver
