// What the files of bindings share: arrays as NumPy hands them over, the lookups of a source of rows, the capsule that
// carries it to other packages, and how errors arrive. For bindings*.cc only; arguments were checked in Python.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "paramserver/csrc/error.h"
#include "paramserver/csrc/row_source.h"
#include "paramserver/csrc/table.h"

namespace paramserver {

template <class Element, int kAxes>
using Array = nanobind::ndarray<Element, nanobind::ndim<kAxes>, nanobind::c_contig, nanobind::device::cpu>;

using Ids = Array<const std::int64_t, 1>;
using Offsets = Array<const std::int32_t, 1>;
using Weights = Array<const float, 1>;
using Rows = Array<const float, 2>;
using Row = Array<const float, 1>;
using StoredRows = Array<const std::uint8_t, 2>;
using Times = Array<const std::uint32_t, 1>;
using OutBytes = Array<std::uint8_t, 2>;
using OutIds = Array<std::int64_t, 1>;
using OutTimes = Array<std::uint32_t, 1>;
using OutRows = Array<float, 2>;
using OutRow = Array<float, 1>;
using Statuses = Array<std::uint8_t, 1>;
using Release = nanobind::call_guard<nanobind::gil_scoped_release>;

template <class One>
auto* data_or_null(const std::optional<One>& array) {
  return array ? array->data() : nullptr;
}

inline RowStatus* statuses(const std::optional<Statuses>& status) {
  return reinterpret_cast<RowStatus*>(data_or_null(status));
}

inline void lookup(const RowSource& source, const LookupContext& context, const Ids& ids, int out_type,
                   const OutBytes& out, const std::optional<Statuses>& status) {
  source.lookup(context, ids.data(), ids.size(), static_cast<RowType>(out_type), out.data(), statuses(status));
}

inline void lookup_pooled(const RowSource& source, const LookupContext& context, const Ids& ids,
                          const Offsets& offsets, int mode, const std::optional<Weights>& weights, int out_type,
                          const OutBytes& out, const std::optional<Statuses>& status) {
  check_bags(offsets.data(), offsets.size() - 1, ids.size());
  source.lookup_pooled(context, ids.data(), offsets.data(), offsets.size() - 1, static_cast<Pooling>(mode),
                       data_or_null(weights), static_cast<RowType>(out_type), out.data(), statuses(status));
}

// Defines what tables in this process's memory are asked.
template <class Source>
void bind_lookups(nanobind::class_<Source>& bound) {
  using namespace nanobind::literals;
  bound
      .def("lookup",
           [](const Source& s, Ids ids, int out_type, OutBytes out, std::optional<Statuses> status,
              std::uint64_t epoch, std::int64_t deadline_ns) {
             lookup(s, {epoch, deadline_ns}, ids, out_type, out, status);
           },
           "ids"_a.noconvert(), "out_type"_a, "out"_a.noconvert(), "status"_a.noconvert().none(), "epoch"_a,
           "deadline_ns"_a, Release())
      .def("lookup_pooled",
           [](const Source& s, Ids ids, Offsets offsets, int mode, std::optional<Weights> weights, int out_type,
              OutBytes out, std::optional<Statuses> status, std::uint64_t epoch, std::int64_t deadline_ns) {
             lookup_pooled(s, {epoch, deadline_ns}, ids, offsets, mode, weights, out_type, out, status);
           },
           "ids"_a.noconvert(), "offsets"_a.noconvert(), "mode"_a, "weights"_a.noconvert().none(), "out_type"_a,
           "out"_a.noconvert(), "status"_a.noconvert().none(), "epoch"_a, "deadline_ns"_a, Release())
      .def("lookup_stored",
           [](const Source& s, Ids ids, OutBytes out, std::optional<Statuses> status, std::uint64_t epoch) {
             s.lookup_stored({.epoch = epoch}, ids.data(), ids.size(), reinterpret_cast<std::byte*>(out.data()),
                             statuses(status));
           },
           "ids"_a.noconvert(), "out"_a.noconvert(), "status"_a.noconvert().none(), "epoch"_a, Release())
      .def("row_bytes", &Source::row_bytes)
      .def("default_row", [](const Source& s, OutRow out) { s.default_row(out.data()); }, "out"_a.noconvert());
}

// A capsule that keeps `source`, which lives in a shared_ptr, alive.
template <class Source>
nanobind::capsule row_source(const Source& source) {
  auto* held = new std::shared_ptr<const RowSource>(source.shared_from_this());
  return nanobind::capsule(held, kRowSourceCapsule,
                           [](void* p) noexcept { delete static_cast<std::shared_ptr<const RowSource>*>(p); });
}

// Raises an Error as the Python class that it names. To be registered once in each extension module.
inline void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    PyErr_SetString(nanobind::module_::import_("paramserver.errors").attr(error.python_name()).ptr(), error.what());
  }
}

}  // namespace paramserver
