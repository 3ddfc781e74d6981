// The Python face of the client of shards and of the hot-row cache. Holds no logic: paramserver/remote.py checks every
// argument before it comes here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paramserver/csrc/bindings_arrays.h"
#include "paramserver/csrc/flight/bindings_flight.h"
#include "paramserver/csrc/flight/client_cluster.h"
#include "paramserver/csrc/flight/client_table.h"
#include "paramserver/csrc/hot_cache.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paramserver::flight {
namespace {

struct CancelFlag {
  std::atomic<bool> set{false};
};

LookupContext context_of(std::uint64_t epoch, std::int64_t deadline_ns, const CancelFlag* cancel) {
  return {epoch, deadline_ns, cancel == nullptr ? nullptr : &cancel->set};
}

std::shared_ptr<Cluster> make_cluster(const std::string& token, const std::string& tls_root_certs,
                                      const std::string& tls_override_hostname, std::uint32_t lookups_max,
                                      std::uint64_t bytes_max, std::uint32_t connect_ms) {
  LaneOptions options;
  options.token = token;
  options.tls_root_certs = tls_root_certs;
  options.tls_override_hostname = tls_override_hostname;
  options.lookups_max = lookups_max;
  options.bytes_max = bytes_max;
  options.connect_ms = connect_ms;
  return std::make_shared<Cluster>(options);
}

std::shared_ptr<RemoteTable> make_table(std::shared_ptr<Cluster> cluster, const std::string& name, std::uint32_t dim,
                                        int wire, std::optional<Row> default_row, std::uint32_t deadline_ms,
                                        double hedge_ms, std::uint32_t stall_ms, std::uint32_t map_wait_ms,
                                        std::uint32_t epoch_wait_ms) {
  return std::make_shared<RemoteTable>(std::move(cluster),
                                       RemoteTableOptions{.name = name,
                                                          .dim = dim,
                                                          .wire = static_cast<WireType>(wire),
                                                          .default_row = data_or_null(default_row),
                                                          .deadline_ms = deadline_ms,
                                                          .hedge_ms = hedge_ms,
                                                          .call = {stall_ms, map_wait_ms, epoch_wait_ms}});
}

std::shared_ptr<HotRowCache> make_cache(const nb::capsule& source, std::uint64_t bytes_max, int kept,
                                        std::int64_t row_age_max_ms, std::int64_t default_age_max_ms) {
  auto* held = static_cast<std::shared_ptr<const RowSource>*>(PyCapsule_GetPointer(source.ptr(), kRowSourceCapsule));
  if (held == nullptr) throw nb::python_error();
  return std::make_shared<HotRowCache>(*held, HotCacheOptions{.bytes_max = bytes_max,
                                                              .kept = static_cast<RowType>(kept),
                                                              .row_age_max_ms = row_age_max_ms,
                                                              .default_age_max_ms = default_age_max_ms});
}

nb::dict lane_stats(const std::string& address, const LaneStats& stats) {
  nb::dict one;
  one["address"] = address;
  one["state"] = static_cast<int>(stats.state);
  one["in_flight"] = stats.in_flight;
  one["sent"] = stats.sent;
  one["late"] = stats.late;
  one["bad"] = stats.bad;
  one["opened"] = stats.opened;
  one["broken"] = stats.broken;
  one["problem"] = stats.problem;
  return one;
}

nb::list lanes(const Cluster& cluster) {
  nb::list all;
  for (const auto& [address, stats] : cluster.lanes()) all.append(lane_stats(address, stats));
  return all;
}

nb::dict table_stats(const RemoteTable& table) {
  const RemoteTableStats stats = table.stats();
  nb::dict all;
  all["lookups"] = stats.lookups;
  all["ids"] = stats.ids;
  all["unique_ids"] = stats.unique_ids;
  all["by_status"] = nb::cast(std::vector<std::uint64_t>(stats.by_status.begin(), stats.by_status.end()));
  all["messages"] = stats.messages;
  all["hedges"] = stats.hedges;
  all["failovers"] = stats.failovers;
  all["mismatches"] = stats.mismatches;
  all["refusals"] = nb::cast(std::vector<std::uint64_t>(stats.refusals.begin(), stats.refusals.end()));
  return all;
}

nb::dict cache_stats(const HotRowCache& cache) {
  const HotCacheStats stats = cache.stats();
  nb::dict all;
  all["hits"] = stats.hits;
  all["misses"] = stats.misses;
  all["bypassed"] = stats.bypassed;
  all["inserted"] = stats.inserted;
  all["evicted"] = stats.evicted;
  all["contended"] = stats.contended;
  all["rows_max"] = stats.rows_max;
  all["bytes"] = stats.bytes;
  return all;
}

void bind_sources(nb::module_& m) {
  nb::class_<CancelFlag>(m, "CancelFlag")
      .def(nb::init<>())
      .def("cancel", [](CancelFlag& flag) { flag.set.store(true, std::memory_order_relaxed); });
  nb::class_<RowSource>(m, "RowSource")
      .def("epoch", &RowSource::epoch)
      .def("lookup",
           [](const RowSource& s, Ids ids, int out_type, OutBytes out, std::optional<Statuses> status,
              std::uint64_t epoch, std::int64_t deadline_ns, const CancelFlag* cancel) {
             lookup(s, context_of(epoch, deadline_ns, cancel), ids, out_type, out, status);
           },
           "ids"_a.noconvert(), "out_type"_a, "out"_a.noconvert(), "status"_a.noconvert().none(), "epoch"_a,
           "deadline_ns"_a, "cancel"_a.none(), Release())
      .def("lookup_pooled",
           [](const RowSource& s, Ids ids, Offsets offsets, int mode, std::optional<Weights> weights, int out_type,
              OutBytes out, std::optional<Statuses> status, std::uint64_t epoch, std::int64_t deadline_ns,
              const CancelFlag* cancel) {
             lookup_pooled(s, context_of(epoch, deadline_ns, cancel), ids, offsets, mode, weights, out_type, out,
                           status);
           },
           "ids"_a.noconvert(), "offsets"_a.noconvert(), "mode"_a, "weights"_a.noconvert().none(), "out_type"_a,
           "out"_a.noconvert(), "status"_a.noconvert().none(), "epoch"_a, "deadline_ns"_a, "cancel"_a.none(),
           Release());
  nb::class_<RemoteTable, RowSource>(m, "RemoteTable")
      .def(nb::new_(&make_table), nb::kw_only(), "cluster"_a, "name"_a, "dim"_a, "wire"_a, "default_row"_a.none(),
           "deadline_ms"_a, "hedge_ms"_a, "stall_ms"_a, "map_wait_ms"_a, "epoch_wait_ms"_a)
      .def("capsule", &row_source<RemoteTable>)
      .def("stats", &table_stats);
  nb::class_<HotRowCache, RowSource>(m, "HotRowCache")
      .def(nb::new_(&make_cache), nb::kw_only(), "source"_a, "bytes_max"_a, "kept"_a, "row_age_max_ms"_a,
           "default_age_max_ms"_a)
      .def("capsule", &row_source<HotRowCache>)
      .def("stats", &cache_stats);
}

}  // namespace

void bind_client(nb::module_& m) {
  m.attr("IDS_PER_LOOKUP_MAX") = kIdsPerLookupMax;
  nb::class_<Cluster>(m, "Cluster")
      .def(nb::new_(&make_cluster), nb::kw_only(), "token"_a, "tls_root_certs"_a, "tls_override_hostname"_a,
           "lookups_max"_a, "bytes_max"_a, "connect_ms"_a)
      .def("set_map", &Cluster::set_map, "version"_a, "addresses"_a, Release())
      .def("set_newest_epoch", &Cluster::set_newest_epoch, "epoch"_a, Release())
      .def("newest_epoch", [](const Cluster& c) { return c.view()->newest_epoch; })
      .def("wait_for_doubt", &Cluster::wait_for_doubt, "timeout_ms"_a, Release())
      .def("in_use", &Cluster::in_use)
      .def("close", &Cluster::close, Release())
      .def("lanes", &lanes);
  bind_sources(m);
}

}  // namespace paramserver::flight
