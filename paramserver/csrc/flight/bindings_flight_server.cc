// The Python face of the shard server. Holds no logic: paramserver/server/ checks what comes here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "paramserver/csrc/flight/bindings_flight.h"
#include "paramserver/csrc/flight/shard_server.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paramserver::flight {
namespace {

using Release = nb::call_guard<nb::gil_scoped_release>;

// Calls the Python function under the GIL; what it throws must not cross Flight's threads.
ControlReply call_python(const nb::object& function, const std::string& action, const std::string& json,
                         const std::string& file) {
  const nb::gil_scoped_acquire gil;
  try {
    const nb::object reply = function(action, nb::bytes(json.data(), json.size()), file);
    auto [outcome, text] = nb::cast<std::tuple<int, std::string>>(reply);
    return {static_cast<ControlOutcome>(outcome), std::move(text)};
  } catch (const std::exception& error) {
    return {ControlOutcome::kInternal, R"({"error": "ProgrammerError", "message": "the control function failed"})"};
  }
}

ControlHandler handler_of(nb::object function) {
  // The last copy may go on a thread of Flight's, so the object is released under the GIL.
  std::shared_ptr<nb::object> held(new nb::object(std::move(function)), [](nb::object* object) {
    const nb::gil_scoped_acquire gil;
    delete object;
  });
  return [held](const std::string& action, const std::string& json, const std::string& file) {
    return call_python(*held, action, json, file);
  };
}

ServedTable served_table(const std::string& name, const nb::capsule& capsule, bool blocking) {
  auto* source = static_cast<std::shared_ptr<const RowSource>*>(PyCapsule_GetPointer(capsule.ptr(), kRowSourceCapsule));
  if (source == nullptr) throw nb::python_error();
  return {name, *source, blocking, nullptr};
}

std::shared_ptr<ShardServer> make_server(const std::string& host, int port, const std::string& certificate,
                                         const std::string& key, const std::string& client_ca,
                                         std::vector<std::string> tokens, std::vector<std::string> control_tokens,
                                         std::tuple<std::size_t, std::size_t, std::size_t, std::size_t> bounds,
                                         std::int64_t streams_max, std::int64_t epoch_wait_ms,
                                         std::int64_t transfers_max, std::int64_t reserve_bytes,
                                         std::int64_t upload_bytes_max, const std::string& upload_directory,
                                         nb::object control) {
  ShardOptions options{.host = host,
                       .port = port,
                       .tls_certificate = certificate,
                       .tls_key = key,
                       .tls_client_ca = client_ca,
                       .tokens = {std::move(tokens), std::move(control_tokens)},
                       .bounds = {std::get<0>(bounds), std::get<1>(bounds), std::get<2>(bounds), std::get<3>(bounds)},
                       .streams_max = streams_max,
                       .epoch_wait_ms = epoch_wait_ms,
                       .transfers_max = transfers_max,
                       .reserve_bytes = reserve_bytes,
                       .upload_bytes_max = upload_bytes_max,
                       .upload_directory = upload_directory,
                       .control = handler_of(std::move(control)),
                       .place = {}};
  const nb::gil_scoped_release release;
  return std::make_shared<ShardServer>(std::move(options));
}

void publish(ShardServer& server, std::uint64_t epoch,
             const std::vector<std::tuple<std::string, nb::capsule, bool>>& tables) {
  std::vector<ServedTable> served;
  for (const auto& [name, capsule, blocking] : tables) served.push_back(served_table(name, capsule, blocking));
  const nb::gil_scoped_release release;
  server.state().publish(epoch, std::move(served));
}

template <class Counters>
nb::list numbers(const Counters& counters) {
  nb::list list;
  for (const Counter& counter : counters) list.append(counter.load());
  return list;
}

nb::dict table_counters(ShardServer& server) {
  nb::dict tables;
  for (const auto& [name, table] : server.state().counters()) {
    nb::dict one;
    one["lookups"] = table->lookups.load();
    one["bytes"] = table->bytes.load();
    one["rows"] = numbers(table->rows);
    one["latency"] = numbers(table->latency);
    one["latency_sum_us"] = table->latency_sum_us.load();
    tables[name.c_str()] = one;
  }
  return tables;
}

nb::dict server_counters(const ShardServer& server) {
  const ServerCounters& counters = server.counters();
  nb::dict all;
  all["refusals"] = numbers(counters.refusals);
  all["messages_bad"] = counters.messages_bad.load();
  all["streams"] = counters.streams.load();
  all["streams_open"] = counters.streams_open.load();
  all["lookups_in_flight"] = counters.lookups.count();
  all["calls_unauthenticated"] = counters.calls_unauthenticated.load();
  return all;
}

}  // namespace

void bind_server(nb::module_& m) {
  nb::class_<ShardServer>(m, "ShardServer")
      .def(nb::new_(&make_server), nb::kw_only(), "host"_a, "port"_a, "certificate"_a, "key"_a, "client_ca"_a,
           "tokens"_a, "control_tokens"_a, "bounds"_a, "streams_max"_a, "epoch_wait_ms"_a, "transfers_max"_a,
           "reserve_bytes"_a, "upload_bytes_max"_a, "upload_directory"_a, "control"_a)
      .def_prop_ro("port", &ShardServer::port)
      .def_prop_ro("epoch_missing_fd", &ShardServer::epoch_missing_fd)
      .def("set_place",
           [](ShardServer& s, std::uint64_t map_version, std::uint32_t shard, std::uint32_t shards) {
             s.state().set_place({map_version, shard, shards});
           },
           "map_version"_a, "shard"_a, "shards"_a, Release())
      .def("publish", &publish, "epoch"_a, "tables"_a)
      .def("retire", [](ShardServer& s, std::uint64_t epoch) { return s.state().retire(epoch); }, "epoch"_a, Release())
      .def("epochs", [](ShardServer& s) { return s.state().epochs(); }, Release())
      .def("stop", [](ShardServer& s, std::int64_t drain_ms) { s.stop(std::chrono::milliseconds(drain_ms)); },
           "drain_ms"_a, Release())
      .def("table_counters", &table_counters)
      .def("server_counters", &server_counters);
  nb::list bounds;
  for (const std::int64_t bound : kLatencyBounds_us) bounds.append(bound);
  m.attr("LATENCY_BOUNDS_US") = bounds;
}

}  // namespace paramserver::flight
