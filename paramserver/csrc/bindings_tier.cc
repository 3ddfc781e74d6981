// The Python face of cold tiers. Holds no logic: paramserver/tier.py checks every argument before it comes here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "paramserver/csrc/bindings.h"
#include "paramserver/csrc/bindings_arrays.h"
#include "paramserver/csrc/cold_reader_plain.h"
#include "paramserver/csrc/table.h"
#include "paramserver/csrc/tier.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paramserver {
namespace {

// Byte offsets in a file.
using Places = Array<const std::uint64_t, 1>;

nb::dict stats_dict(const Table& table) {
  // Waits for a writer, which may take seconds.
  const TierStats s = [&table] {
    const nb::gil_scoped_release release;
    return table.tier_stats();
  }();
  nb::dict d;
  d["rows_ram"] = s.rows_ram;
  d["rows_ram_max"] = s.rows_ram_max;
  d["rows_cold_read"] = s.rows_cold_read;
  d["reads"] = s.reads;
  d["read_bytes"] = s.read_bytes;
  d["reads_failed"] = s.reads_failed;
  d["reads_mismatched"] = s.reads_mismatched;
  d["reads_over"] = s.reads_over;
  d["reads_in_flight"] = s.reads_in_flight;
  d["proposed"] = s.proposed;
  d["dropped"] = s.dropped;
  d["promoted"] = s.promoted;
  d["rejected"] = s.rejected;
  d["demoted_clean"] = s.demoted_clean;
  d["demoted_dirty"] = s.demoted_dirty;
  d["spill_rows"] = s.spill.slots_live;
  d["spill_bytes"] = s.spill.bytes;
  d["spill_bytes_written"] = s.spill.bytes_written;
  d["spill_writes_refused"] = s.spill.writes_refused;
  d["spill_direct"] = s.spill.direct;
  d["base_direct"] = s.base_direct;
  d["engine"] = s.engine;
  return d;
}

}  // namespace

void bind_tier(nb::module_& m) {
  nb::class_<TierOptions>(m, "TierOptions")
      .def("__init__",
           [](TierOptions* t, std::uint64_t ram_bytes_max, const std::string& directory, std::uint64_t spill_bytes_max,
              std::uint64_t cold_reads_max, unsigned depth_max, std::uint64_t proposals_max, bool direct, bool keeper,
              const std::string& base_path, std::uint64_t base_offset) {
             new (t) TierOptions{ram_bytes_max, directory, spill_bytes_max, cold_reads_max, depth_max, proposals_max,
                                 direct, keeper, base_path, base_offset};
           },
           "ram_bytes_max"_a, "directory"_a, "spill_bytes_max"_a, "cold_reads_max"_a, "depth_max"_a, "proposals_max"_a,
           "direct"_a, "keeper"_a, "base_path"_a, "base_offset"_a);
  m.def("add_base",
        [](Table& t, Ids ids, std::uint64_t first_slot, std::optional<Times> times) {
          t.add_base(ids.data(), ids.size(), first_slot, data_or_null(times));
        },
        "table"_a, "ids"_a.noconvert(), "first_slot"_a, "times"_a.noconvert().none(), Release());
  m.def("maintain", [](Table& t) { t.maintain(); }, "table"_a, Release());
  m.def("tier_stats", &stats_dict, "table"_a);
  m.def("plain_parallel_read",
        [](const std::string& path, Places offsets, std::size_t bytes, unsigned threads) {
          return plain_parallel_read(path, offsets.data(), offsets.size(), bytes, threads);
        },
        "path"_a, "offsets"_a.noconvert(), "bytes"_a, "threads"_a, Release());
}

}  // namespace paramserver
