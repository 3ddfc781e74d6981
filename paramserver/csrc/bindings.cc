// The Python face of Table. Holds no logic: paramserver/table.py checks every argument before it comes here.
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

#include "paramserver/csrc/array_gather.h"
#include "paramserver/csrc/bindings.h"
#include "paramserver/csrc/bindings_arrays.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/half.h"
#include "paramserver/csrc/hash.h"
#include "paramserver/csrc/mapped_memory.h"
#include "paramserver/csrc/table.h"
#include "paramserver/csrc/tier.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paramserver {
namespace {

const Kernels* kernels_named(const std::optional<std::string>& name) {
  return name ? &choose_kernels(name->c_str()) : nullptr;
}

std::shared_ptr<Table> make_table(std::uint32_t dim, int stored, std::uint64_t rows_hint,
                                  std::optional<Row> default_row, bool huge_pages,
                                  const std::optional<std::string>& instruction_set,
                                  std::int64_t base_sequence, double ttl_s, std::uint32_t base_time_s,
                                  std::uint64_t admit_after, double apply_rows_per_s,
                                  const std::optional<std::string>& shared, const std::string& name,
                                  const std::optional<TierOptions>& tier) {
  const auto memory = shared ? MappedMemory::create({.path = *shared}) : nullptr;
  const auto stored_as = static_cast<Stored>(stored);
  auto table = std::make_shared<Table>(TableOptions{.dim = dim,
                                              .stored = stored_as,
                                              .rows_hint = rows_hint,
                                              .default_row = data_or_null(default_row),
                                              .huge_pages = huge_pages,
                                              .kernels = kernels_named(instruction_set),
                                              .base_sequence = base_sequence,
                                              .ttl_s = ttl_s,
                                              .base_time_s = base_time_s,
                                              .admit_after = admit_after,
                                              .apply_rows_per_s = apply_rows_per_s,
                                              .memory = memory,
                                              .tier = make_tier(tier, stored_row_bytes(stored_as, dim))});
  if (memory != nullptr) memory->show(table->state_offset(), name, base_sequence);
  return table;
}

nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>> ids_array(const Table& table, std::uint64_t epoch) {
  std::vector<std::int64_t>* ids;
  {
    nb::gil_scoped_release release;
    ids = new std::vector<std::int64_t>(table.ids(epoch));
  }
  nb::capsule owner(ids, [](void* p) noexcept { delete static_cast<std::vector<std::int64_t>*>(p); });
  return {ids->data(), {ids->size()}, owner};
}

nb::tuple story(const Table& table, std::int64_t id, std::uint64_t epoch) {
  // Waits for a writer, which may take seconds.
  const IdStory s = [&] {
    const nb::gil_scoped_release release;
    return table.why(id, epoch);
  }();
  return nb::make_tuple(static_cast<int>(s.state.kind()), s.state.value(), s.sequence, s.state.deltas(), s.time_s,
                        s.expires_s);
}

void bind_table(nb::module_& m) {
  nb::class_<Table> bound(m, "Table");
  bind_lookups(bound);
  bound
      .def(nb::new_(&make_table), "dim"_a, "stored"_a, "rows_hint"_a, "default_row"_a.none(), "huge_pages"_a,
           "instruction_set"_a.none(), "base_sequence"_a, "ttl_s"_a, "base_time_s"_a, "admit_after"_a,
           "apply_rows_per_s"_a, "shared"_a.none(), "name"_a, "tier"_a.none())
      .def("__len__", &Table::size)
      .def("upsert", [](Table& t, Ids ids, Rows rows) { return t.upsert(ids.data(), rows.data(), ids.size()); },
           "ids"_a.noconvert(), "rows"_a.noconvert(), Release())
      .def("delete", [](Table& t, Ids ids) { return t.erase(ids.data(), ids.size()); }, "ids"_a.noconvert(), Release())
      .def("add_rows",
           [](Table& t, Ids ids, StoredRows rows, std::optional<Times> times) {
             return t.add_rows(ids.data(), reinterpret_cast<const std::byte*>(rows.data()), ids.size(),
                               data_or_null(times));
           },
           "ids"_a.noconvert(), "rows"_a.noconvert(), "times"_a.noconvert().none(), Release())
      .def("sweep", &Table::sweep, "now_s"_a, Release())
      .def("apply",
           [](Table& t, std::int64_t sequence, std::int64_t after, Ids ids, Rows rows, Ids deletes,
              std::uint32_t time_s) {
             t.apply(sequence, after, ids.data(), rows.data(), ids.size(), deletes.data(), deletes.size(), time_s);
           },
           "sequence"_a, "after"_a, "ids"_a.noconvert(), "rows"_a.noconvert(), "deletes"_a.noconvert(), "time_s"_a,
           Release())
      .def("publish", &Table::publish, "epoch"_a, "sequence"_a, Release())
      .def("retire", &Table::retire, "epoch"_a, Release())
      .def("revert", &Table::revert, "sequence"_a, Release())
      .def("sequence", &Table::sequence, Release())
      .def("epochs", &Table::epochs, Release())
      .def("holds", &Table::holds, "epoch"_a)
      .def("ids", &ids_array, "epoch"_a)
      .def("why", &story, "id"_a, "epoch"_a)
      .def("capsule", &row_source<Table>)
      .def("stats", [](const Table& t) {
        // Waits for a writer, which may take seconds.
        const TableStats s = [&t] {
          const nb::gil_scoped_release release;
          return t.stats();
        }();
        const std::vector<std::uint64_t> statuses(s.statuses.begin(), s.statuses.end());
        return nb::make_tuple(s.rows, s.rows_retired, s.rows_pending, s.bytes_index, s.bytes_rows, s.bytes_undo,
                              s.bytes_peak, s.huge_pages, s.instruction_set, s.lookups, statuses);
      });
}

}  // namespace

NB_MODULE(_core, m) {
  nb::register_exception_translator(&translate);
  bind_tier(m);
  bind_table(m);
  bind_snapshot(m);
  nb::class_<ArrayGather>(m, "ArrayGather")
      .def(nb::init<std::uint64_t, std::uint32_t>(), "rows"_a, "dim"_a, Release())
      .def_prop_ro("huge_pages", &ArrayGather::huge_pages)
      .def("gather",
           [](const ArrayGather& g, Ids rows, OutRows out) { g.gather(rows.data(), rows.size(), out.data()); },
           "row_numbers"_a.noconvert(), "out"_a.noconvert(), Release())
      .def("gather_two_pages",
           [](const ArrayGather& g, Ids rows, OutRows out) {
             g.gather_two_pages(rows.data(), rows.size(), out.data());
           },
           "row_numbers"_a.noconvert(), "out"_a.noconvert(), Release());
  bind_rows(m);
  bind_mapped(m);
  m.def("mix", &mix, "id"_a);
  m.def("shard_of", &shard_of, "id"_a, "shards"_a);
  m.def("f32_of_f16", &f32_of_f16, "half"_a);
  m.def("f16_of_f32", &f16_of_f32, "value"_a);
  m.def("bf16_of_f32", &bf16_of_f32, "value"_a);
}

}  // namespace paramserver
