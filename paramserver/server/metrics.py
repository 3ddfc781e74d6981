"""What Prometheus scrapes: the native counters, and the store's numbers, read when asked for."""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from paramserver.errors import OperatingError
from paramserver.native_flight import native
from paramserver.status import RowStatus

__all__ = ["ANSWER_CODES", "MetricsEndpoint", "ShardCollector"]

#: What a refusal may be for, by its number on the wire (AnswerCode of csrc/flight/wire.h).
ANSWER_CODES = ("ok", "shard_map_mismatch", "unknown_table", "unknown_epoch", "bad_request", "overloaded", "closing",
                "expired")


class ShardCollector:
    """server: the native server. status: gives the store's status (paramserver.store.ShardStore.status). tables: gives
    the tables by version and name."""

    def __init__(self, server: Any, status: Callable[[], dict[str, Any]],
                 tables: Callable[[], dict[int, dict[str, Any]]]) -> None:
        self._server, self._status, self._tables = server, status, tables

    def collect(self) -> Iterator[Metric]:
        """All metrics now; prometheus_client calls this for every scrape."""
        yield from _of_lookups(self._server.table_counters())
        yield from _of_server(self._server.server_counters())
        yield from _of_store(self._status())
        yield from _of_tables(self._tables())


class MetricsEndpoint:
    """An HTTP server of one collector at `address` (HOST:PORT, port 0: any). Raises OperatingError."""

    def __init__(self, address: str, collector: ShardCollector) -> None:
        host, _, port = address.rpartition(":")
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(int(port), host, registry)
        except OSError as error:
            raise OperatingError(f"metrics cannot be served on {address}: {error}") from error
        self.address = f"{host}:{self._server.server_port}"

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _of_lookups(tables: dict[str, dict[str, Any]]) -> Iterator[Metric]:
    lookups = CounterMetricFamily("paramserver_lookups", "Lookups answered in full", labels=["table"])
    rows = CounterMetricFamily("paramserver_rows", "Rows sent, by what became of their ids", labels=["table", "status"])
    sent = CounterMetricFamily("paramserver_sent_bytes", "Bytes of rows sent", labels=["table"])
    seconds = HistogramMetricFamily("paramserver_lookup_seconds", "From a lookup's arrival to its last write",
                                    labels=["table"])
    for name, counters in tables.items():
        lookups.add_metric([name], counters["lookups"])
        sent.add_metric([name], counters["bytes"])
        for status, count in zip(RowStatus, counters["rows"], strict=True):
            rows.add_metric([name, status.name.lower()], count)
        seconds.add_metric([name], _buckets(counters["latency"]), counters["latency_sum_us"] / 1e6)
    yield from (lookups, rows, sent, seconds)


def _buckets(counts: list[int]) -> list[tuple[str, float]]:
    bounds = [str(bound / 1e6) for bound in native.LATENCY_BOUNDS_US] + ["+Inf"]
    total, buckets = 0, []
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets


def _of_server(counters: dict[str, Any]) -> Iterator[Metric]:
    refusals = CounterMetricFamily("paramserver_refusals", "Lookups refused, by the reason", labels=["code"])
    for code, count in list(zip(ANSWER_CODES, counters["refusals"], strict=True))[1:]:
        refusals.add_metric([code], count)
    yield refusals
    yield CounterMetricFamily("paramserver_messages_bad", "Messages that were no lookups", counters["messages_bad"])
    yield CounterMetricFamily("paramserver_calls_unauthenticated", "Calls refused for want of a token",
                              counters["calls_unauthenticated"])
    yield CounterMetricFamily("paramserver_streams", "Lookup streams ever opened", counters["streams"])
    yield GaugeMetricFamily("paramserver_streams_open", "Lookup streams open", counters["streams_open"])
    yield GaugeMetricFamily("paramserver_lookups_in_flight", "Lookups being answered", counters["lookups_in_flight"])


def _of_store(status: dict[str, Any]) -> Iterator[Metric]:
    yield GaugeMetricFamily("paramserver_epoch", "The newest epoch served", status["newest_epoch"])
    yield GaugeMetricFamily("paramserver_epoch_wanted", "An epoch that this shard cannot show yet, 0: none",
                            status["wanted_epoch"])
    yield GaugeMetricFamily("paramserver_epoch_problems", "Epochs of the cluster that this shard cannot show or read",
                            len(status["epoch_problems"]))
    yield GaugeMetricFamily("paramserver_diverged", "1 when the cluster's epochs are not those shown here, so that "
                            "nothing is served", int(bool(status["diverged"])))
    yield GaugeMetricFamily("paramserver_epochs_held", "Epochs that lookups may name", len(status["epochs"]))
    yield GaugeMetricFamily("paramserver_disk_free_bytes", "Free space of the shard's directory", status["free_bytes"])
    yield GaugeMetricFamily("paramserver_log_bytes", "Bytes of the log", status["log_bytes"])
    labels = ["table", "version"]
    sequence = GaugeMetricFamily("paramserver_sequence", "The newest delta staged", labels=labels)
    published = GaugeMetricFamily("paramserver_sequence_published", "The newest delta shown", labels=labels)
    lag = GaugeMetricFamily("paramserver_lag", "Deltas that the newest epoch names and this shard lacks", labels=labels)
    for version, tables in status["versions"].items():
        for name, table in tables.items():
            for family, field in ((sequence, "sequence"), (published, "published"), (lag, "lag")):
                family.add_metric([name, version], table[field])
    yield from (sequence, published, lag)


def _of_tables(versions: dict[int, dict[str, Any]]) -> Iterator[Metric]:
    """A gauge for every number of a table's stats; of a field that holds several, one sample each, labelled `kind`."""
    families: dict[str, GaugeMetricFamily] = {}
    for version, tables in versions.items():
        for name, table in tables.items():
            for field, kind, value in _numbers(table):
                key = f"paramserver_table_{field}"
                labels = ["table", "version", *(["kind"] if kind else [])]
                family = families.setdefault(key, GaugeMetricFamily(key, f"`{field}` of the table's stats",
                                                                    labels=labels))
                family.add_metric([name, str(version), *([kind] if kind else [])], value)
    yield from families.values()


def _numbers(table: Any) -> Iterator[tuple[str, str, float]]:
    """(field, kind, value) of whatever a table counts or measures."""
    stats, tier = table.stats(), table.tier_stats()
    yield "bytes", "", stats.bytes
    for prefix, part in (("", stats), ("tier_", tier)):
        for field in part.__dataclass_fields__ if part is not None else ():
            value = getattr(part, field)
            for kind, number in value.items() if isinstance(value, dict) else [("", value)]:
                if isinstance(number, (int, float)) and not isinstance(number, bool):
                    yield prefix + field, kind, number
