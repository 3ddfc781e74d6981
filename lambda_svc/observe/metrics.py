"""What Prometheus scrapes: the counts of requests, and the numbers of queues, streams and versions, read when asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from lambda_svc.lifecycle.keeper import Keeper
from lambda_svc.observe.histogram import Histogram, buckets
from lambda_svc.observe.observer import Observer
from lambda_svc.observe.recorder import STAGES, Series
from lambda_svc.observe.window import Window, by_scenario
from lambda_svc.rollout import Rollouts
from lambda_svc.session.streams import Streams

__all__ = ["Metrics", "streams_of"]

STATES = ("serving", "loading", "failed")


class Metrics:
    """The metrics of one server as text. Thread-safe."""

    def __init__(self, observer: Observer, window: Window, keeper: Keeper, rollouts: Rollouts | None) -> None:
        self._observer, self._window, self._keeper, self._rollouts = observer, window, keeper, rollouts
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)
        self._registry.register(self)

    def text(self) -> bytes:
        """All metrics now, in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """All metrics of the service; the registry calls this."""
        yield from _of_versions(self._observer.recorder.totals())
        yield from _of_scenarios(by_scenario(self._observer.recorder))
        yield from self._of_queues()
        yield from self._of_streams()
        yield from self._of_models()
        yield from self._of_user_states()
        yield from self._of_rollouts()
        yield from self._of_request_log()
        waits = HistogramMetricFamily("lambda_svc_interpreter_wait_seconds",
                                      "How late a thread that slept shortly came to run again")
        _add(waits, [], self._window.wait)
        yield waits

    def _of_queues(self) -> Iterator[Metric]:
        ranking = self._observer.ranking
        stats = {} if ranking is None else ranking.stats()
        for field, text in (("running", "Requests in their native call"),
                            ("waiting", "Requests that wait for a stream")):
            gauge = GaugeMetricFamily(f"lambda_svc_queue_{field}", text, labels=["scenario"])
            for name, queue in stats.items():
                gauge.add_metric([name], getattr(queue, field))
            yield gauge
        for field, text in (("admitted", "Requests that got a stream"),
                            ("refused", "Requests refused because the queue was full"),
                            ("expired", "Requests whose deadline passed in the queue")):
            counter = CounterMetricFamily(f"lambda_svc_queue_{field}", text, labels=["scenario"])
            for name, queue in stats.items():
                counter.add_metric([name], getattr(queue, field))
            yield counter
        longest = GaugeMetricFamily("lambda_svc_queue_max", "How many requests may wait", labels=["scenario"])
        for name, route in self._observer.routes.items():
            longest.add_metric([name], route.stable.config.queue_max)
        yield longest

    def _of_streams(self) -> Iterator[Metric]:
        there = GaugeMetricFamily("lambda_svc_streams", "Streams of a model", labels=["model"])
        busy = GaugeMetricFamily("lambda_svc_streams_busy", "Streams that run something", labels=["model"])
        waited = CounterMetricFamily("lambda_svc_stream_wait_seconds", "Time that requests waited for a stream",
                                     labels=["model"])
        for model, streams in streams_of(self._observer).items():
            stats = streams.stats()
            there.add_metric([model], stats.streams)
            busy.add_metric([model], stats.busy)
            waited.add_metric([model], stats.wait_us_total / 1e6)
        yield from (there, busy, waited)

    def _of_user_states(self) -> Iterator[Metric]:
        if self._observer.ranking is None:
            return
        stats = self._observer.ranking.user_states.stats()
        yield GaugeMetricFamily("lambda_svc_user_states", "User sides that are kept", stats.states)
        yield GaugeMetricFamily("lambda_svc_user_state_bytes", "Memory that they take", stats.nbytes)
        asked = CounterMetricFamily("lambda_svc_user_state_uses", "Requests, by what became of the user side kept",
                                    labels=["use"])
        for use in ("used", "absent", "mismatched"):
            asked.add_metric([use], getattr(stats, use))
        yield asked
        ends = CounterMetricFamily("lambda_svc_user_state_ends", "User sides by what became of them", labels=["end"])
        for end in ("kept", "evicted", "expired", "dropped", "refused"):
            ends.add_metric([end], getattr(stats, end))
        yield ends

    def _of_models(self) -> Iterator[Metric]:
        versions = self._keeper.status()
        count = GaugeMetricFamily("lambda_svc_model_versions", "Versions by what they do: serving, loading or failed",
                                  labels=["model", "state"])
        state = GaugeMetricFamily("lambda_svc_model_version_state", "1 for the state that a version is in",
                                  labels=["model", "version", "state"])
        counted = Counter((one.model, one.state) for one in versions)
        for model in sorted({one.model for one in versions}):
            for name in STATES:
                count.add_metric([model, name], counted[model, name])
        for one in versions:
            state.add_metric([one.model, str(one.version), one.state], 1)
        stable = GaugeMetricFamily("lambda_svc_scenario_version", "The version that serves a scenario",
                                   labels=["scenario", "model"])
        for name, route in self._observer.routes.items():
            stable.add_metric([name, route.stable.wire.model], route.stable.wire.version)
        yield from (count, state, stable)
        yield CounterMetricFamily("lambda_svc_switches", "Times that routes were replaced, the first among them",
                                  self._keeper.switches)
        yield GaugeMetricFamily("lambda_svc_ready", "1 while the server is ready", int(self._observer.ready))
        epoch = self._keeper.epoch
        if epoch is not None:
            yield GaugeMetricFamily("lambda_svc_epoch", "The newest epoch known of the cluster of shards", epoch)


    def _of_rollouts(self) -> Iterator[Metric]:
        share = GaugeMetricFamily("lambda_svc_rollout_share", "Share of users that a version on trial serves",
                                  labels=["scenario", "version"])
        state = GaugeMetricFamily("lambda_svc_rollout_state", "1 for the state that a rollout is in",
                                  labels=["scenario", "version", "state"])
        for rollout, _, _ in [] if self._rollouts is None else self._rollouts.status():
            share.add_metric([rollout.scenario, str(rollout.version)], rollout.share)
            state.add_metric([rollout.scenario, str(rollout.version), rollout.state], 1)
        yield from (share, state)

    def _of_request_log(self) -> Iterator[Metric]:
        kept = self._observer.request_log
        for field, text in (("written", "Requests written to the request log"),
                            ("dropped", "Requests that found the request log's queue full"),
                            ("failed", "Requests that the request log could not write")):
            if kept is not None:
                yield CounterMetricFamily(f"lambda_svc_request_log_{field}", text, getattr(kept, field))


def streams_of(observer: Observer) -> dict[str, Streams]:
    """The streams of every model that serves."""
    return {route.stable.wire.model: route.stable.model.streams for route in observer.routes.values()}


def _of_versions(totals: dict[tuple[str, int], Series]) -> Iterator[Metric]:
    labels = ["scenario", "version"]
    requests = CounterMetricFamily("lambda_svc_requests", "Requests, by the status they ended with",
                                   labels=[*labels, "code"])
    wasted = CounterMetricFamily("lambda_svc_wasted_run_seconds", "Time of the run stage whose answer nobody got",
                                 labels=[*labels, "code"])
    seconds = HistogramMetricFamily("lambda_svc_request_seconds",
                                    "From arrival to end, of the requests that a version was chosen for",
                                    labels=labels)
    for (scenario, version), series in sorted(totals.items()):
        named = [scenario, str(version or "")]
        for code, count in sorted(series.codes.items()):
            requests.add_metric([*named, code], count)
        for code, us in sorted(series.wasted_us.items()):
            wasted.add_metric([*named, code], us / 1e6)
        _add(seconds, named, series.seconds)
    yield from (requests, wasted, seconds)


def _of_scenarios(scenarios: dict[str, Series]) -> Iterator[Metric]:
    stages = HistogramMetricFamily("lambda_svc_stage_seconds", "Time of each stage of the requests that were scored",
                                   labels=["scenario", "stage"])
    candidates = CounterMetricFamily("lambda_svc_candidates", "Candidates scored", labels=["scenario"])
    copied = CounterMetricFamily("lambda_svc_copied_bytes", "Bytes of feeds that the engine could not use in place",
                                 labels=["scenario"])
    asked = CounterMetricFamily("lambda_svc_coverage_asked", "Feature cells and ids asked for",
                                labels=["scenario", "source"])
    answered = CounterMetricFamily("lambda_svc_coverage_answered", "Feature cells and ids answered from data",
                                   labels=["scenario", "source"])
    reasons = CounterMetricFamily("lambda_svc_reasons", "What answers told their callers",
                                  labels=["scenario", "reason"])
    for scenario, series in sorted(scenarios.items()):
        if not scenario:
            continue
        for name, histogram in zip(STAGES, series.stages, strict=True):
            _add(stages, [scenario, name], histogram)
        candidates.add_metric([scenario], series.candidates)
        copied.add_metric([scenario], series.bytes_copied)
        for family, counts in ((asked, series.asked), (answered, series.answered), (reasons, series.reasons)):
            for name, count in sorted(counts.items()):
                family.add_metric([scenario, name], count)
    yield from (stages, candidates, copied, asked, answered, reasons)


def _add(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    family.add_metric(labels, buckets(histogram), histogram.sum_us / 1e6)
