// The Python face of snapshots. Holds no logic: paramserver/snapshot.py and convert.py check every argument before.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <string>
#include <vector>

#include "paramserver/csrc/bindings.h"
#include "paramserver/csrc/bindings_arrays.h"
#include "paramserver/csrc/stored_rows.h"
#include "paramserver/csrc/snapshot_file.h"
#include "paramserver/csrc/snapshot_file_builder.h"
#include "paramserver/csrc/snapshot_file_load.h"
#include "paramserver/csrc/snapshot_file_writer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paramserver {
namespace {

using File = std::shared_ptr<const SnapshotFile>;

const std::byte* bytes_of(const StoredRows& rows) { return reinterpret_cast<const std::byte*>(rows.data()); }
std::byte* bytes_of(const OutBytes& rows) { return reinterpret_cast<std::byte*>(rows.data()); }

template <class T>
nb::ndarray<nb::numpy, const T, nb::ndim<1>> borrowed(const File& file, const T* data, std::size_t n) {
  nb::capsule owner(new File(file), [](void* p) noexcept { delete static_cast<File*>(p); });
  return {data, {n}, owner};
}

SnapshotHeader header_of(int stored, std::uint32_t dim, bool times, std::uint64_t rows, std::int64_t base_sequence,
                         std::int64_t package_version, std::int64_t time_s) {
  return {static_cast<Stored>(stored), dim, times, rows, base_sequence, package_version, time_s};
}

void bind_file(nb::module_& m) {
  nb::class_<SnapshotFile>(m, "SnapshotFile")
      .def(nb::new_([](const std::string& path) { return std::make_shared<SnapshotFile>(path); }), "path"_a, Release())
      .def("header",
           [](const SnapshotFile& f) {
             const SnapshotHeader& h = f.header();
             return nb::make_tuple(static_cast<int>(h.stored), h.dim, h.times, h.rows, h.base_sequence,
                                   h.package_version, h.time_s, h.row_bytes(), f.layout().geometry().slot_bytes);
           })
      .def_prop_ro("slots_offset", &SnapshotFile::slots_offset)
      .def_prop_ro("slots_block", [](const SnapshotFile& f) {
        return f.layout().section(SnapshotSection::kSlots).first_block;
      })
      .def_prop_ro("blocks", [](const SnapshotFile& f) { return f.layout().blocks(); })
      .def("default_row",
           [](const File& f) {
             return borrowed(f, reinterpret_cast<const std::uint8_t*>(f->default_row()), f->header().row_bytes());
           })
      .def("ids", [](const File& f) { return borrowed(f, f->ids(), f->rows()); })
      .def("times", [](const File& f) { return borrowed(f, f->times(), f->header().times ? f->rows() : 0); })
      .def("read_rows", [](const SnapshotFile& f, std::uint64_t first, std::uint64_t end,
                           OutBytes out) { f.read_rows(first, end, bytes_of(out)); },
           "first"_a, "end"_a, "out"_a.noconvert(), Release())
      .def("load_default_row", [](const SnapshotFile& f, Table& table) { load_default_row(f, table); }, "table"_a)
      .def_prop_ro("load_steps", &load_steps)
      .def("load_rows",
           [](const SnapshotFile& f, Table& table, std::uint64_t first, std::uint64_t end, std::uint64_t ahead,
              unsigned threads, bool verify) { return load_rows(f, table, first, end, ahead, threads, verify); },
           "table"_a, "first"_a, "end"_a, "ahead"_a, "threads"_a, "verify"_a, Release())
      .def("verify_blocks", &SnapshotFile::verify_blocks, "first"_a, "end"_a, Release())
      .def("check_order", &SnapshotFile::check_order, "first"_a, "end"_a, Release());
}

void bind_writers(nb::module_& m) {
  nb::class_<SnapshotWriter>(m, "SnapshotWriter")
      .def("__init__",
           [](SnapshotWriter* self, std::string path, int stored, std::uint32_t dim, bool times, std::uint64_t rows,
              std::int64_t base_sequence, std::int64_t package_version, std::int64_t time_s, StoredRows default_row) {
             new (self) SnapshotWriter(std::move(path),
                                       header_of(stored, dim, times, rows, base_sequence, package_version, time_s),
                                       bytes_of(default_row));
           },
           "path"_a, "stored"_a, "dim"_a, "times"_a, "rows"_a, "base_sequence"_a, "package_version"_a, "time_s"_a,
           "default_row"_a.noconvert())
      .def("append",
           [](SnapshotWriter& w, Ids ids, StoredRows rows, std::optional<Times> times) {
             w.append_packed(ids.data(), bytes_of(rows), data_or_null(times), ids.size());
           },
           "ids"_a.noconvert(), "rows"_a.noconvert(), "times"_a.noconvert().none(), Release())
      .def("abandon", &SnapshotWriter::abandon)
      .def("finish", &SnapshotWriter::finish, Release());
  nb::class_<SnapshotBuilder>(m, "SnapshotBuilder")
      .def("__init__",
           [](SnapshotBuilder* self, std::string path, int stored, std::uint32_t dim, bool times, std::uint64_t rows,
              std::int64_t base_sequence, std::int64_t package_version, std::int64_t time_s, StoredRows default_row,
              std::uint64_t memory_bytes_max) {
             new (self) SnapshotBuilder(std::move(path),
                                        header_of(stored, dim, times, rows, base_sequence, package_version, time_s),
                                        bytes_of(default_row), memory_bytes_max);
           },
           "path"_a, "stored"_a, "dim"_a, "times"_a, "rows"_a, "base_sequence"_a, "package_version"_a, "time_s"_a,
           "default_row"_a.noconvert(), "memory_bytes_max"_a)
      .def("add",
           [](SnapshotBuilder& b, Ids ids, StoredRows rows, std::optional<Times> times) {
             b.add(ids.data(), bytes_of(rows), data_or_null(times), ids.size());
           },
           "ids"_a.noconvert(), "rows"_a.noconvert(), "times"_a.noconvert().none(), Release())
      .def_prop_ro("rows", &SnapshotBuilder::rows)
      .def_prop_ro("spilled_bytes", &SnapshotBuilder::spilled_bytes)
      .def_prop_ro("last_id", &SnapshotBuilder::last_id)
      .def_prop_ro("rows_written", &SnapshotBuilder::rows_written)
      .def("write_partition", &SnapshotBuilder::write_partition, Release())
      .def("abandon", &SnapshotBuilder::abandon)
      .def("finish", &SnapshotBuilder::finish, Release());
}

void bind_codec(nb::module_& m) {
  m.def("first_unfit",
        [](int stored, std::uint32_t dim, StoredRows rows) {
          return first_unfit(static_cast<Stored>(stored), dim, bytes_of(rows), rows.shape(0));
        },
        "stored"_a, "dim"_a, "rows"_a.noconvert(), Release());
  m.def("row_error",
        [](int stored, Rows rows, StoredRows encoded) {
          const RowError e = row_error(static_cast<Stored>(stored), static_cast<std::uint32_t>(rows.shape(1)),
                                       rows.data(), bytes_of(encoded), rows.shape(0));
          return std::make_tuple(e.max, e.sum, e.squares, e.signal_squares);
        },
        "stored"_a, "rows"_a.noconvert(), "encoded"_a.noconvert(), Release());
  m.def("rows_fingerprint",
        [](Ids ids, StoredRows rows) {
          return rows_fingerprint(ids.data(), bytes_of(rows), rows.shape(1), ids.size());
        },
        "ids"_a.noconvert(), "rows"_a.noconvert(), Release());
  m.def("row_times",
        [](const Table& table, Ids ids, std::uint64_t epoch, OutTimes out) {
          table.times(ids.data(), ids.size(), epoch, out.data());
        },
        "table"_a, "ids"_a.noconvert(), "epoch"_a, "out"_a.noconvert(), Release());
  m.def("sort_by_mix", [](OutIds ids) { sort_by_mix(ids.data(), ids.size()); }, "ids"_a.noconvert(), Release());
}

}  // namespace

void bind_snapshot(nb::module_& m) {
  bind_file(m);
  bind_writers(m);
  bind_codec(m);
}

}  // namespace paramserver
