"""The values of the Prometheus metrics, from the output of the state and the ledger, once a micro-batch in the driver.

Counters count from the start of this process. A micro-batch that Spark runs again after a restart of its query is
counted once. Gauges come from the output of the last micro-batch. Ages are computed at the scrape, so that they grow
between micro-batches. An unknown value is absent, not zero.
"""

from __future__ import annotations

import threading
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from txnwatch.metrics.table import (
    COMPLETE_OF,
    INITIAL_SERIES,
    METRICS,
    NAMESPACE,
    PREPARED,
    STAGES,
    TARGETS,
    Kind,
)
from txnwatch.sinks.delivery.outbox import DeliveryCounts
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.audit.audit_check import ExposureSeverity
from txnwatch.state.detection.open_transactions import OWNER_UNKNOWN, UNOWNED
from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.completion_latency import BOUNDS_MS, Latencies, Tally
from txnwatch.state.model.errors import SkipReason
from txnwatch.state.model.findings import (
    BucketCount,
    CensusResult,
    Finding,
    OpenTransactions,
    OutstandingGap,
    PartitionAlarm,
    ReadLimitReached,
    RequestsThrottled,
    TransactionsEnded,
    Unproven,
    ViewHealed,
)
from txnwatch.state.model.incident import Action, IncidentEvent, IncidentStatus
from txnwatch.state.model.transaction import COMPLETED_AS, TransactionState
from txnwatch.state.model.values import (
    NO_TIME,
    BrokerId,
    CoordinatorAccess,
    DurationMs,
    Offset,
    TimestampMs,
    TopicPartition,
    elapsed,
    is_log,
)
from txnwatch.state.telling.folding import owner_label
from txnwatch.streaming.job.checkpoint import Progress
from txnwatch.watch.coverage import MissingEvidence, is_log_missing

# The metrics whose values are computed at the scrape, so that ages grow between two micro-batches.

_SPEC = {spec.name: spec for spec in METRICS}


@dataclass(frozen=True, slots=True)
class Picture:
    """The facts of the last evaluated barrier that a scrape needs; times are our clock.

    Attributes:
        caught_up_ms: when everything was last read to its listed end; None if that has not happened yet.
    """

    data_listed_ms: TimestampMs
    caught_up_ms: TimestampMs | None
    oldest_open_ms: TimestampMs | None
    oldest_prepared_ms: TimestampMs | None
    pinned: Mapping[TopicPartition, tuple[Offset, TimestampMs]]
    left: Mapping[TopicPartition, Offset]


def _of_picture(picture: Picture, now_ms: TimestampMs) -> Iterator[Family]:
    """The gauges of the last evaluated barrier; an unknown value is absent."""
    yield gauge("last_barrier_timestamp_seconds", {(): picture.data_listed_ms / 1000})
    yield gauge("oldest_open_transaction_seconds", {(): _age_s(now_ms, picture.oldest_open_ms)})
    yield gauge("oldest_pending_transaction_seconds", {(): _age_s(now_ms, picture.oldest_prepared_ms)})
    pinned = {partition: _age_s(now_ms, since_ms) for partition, (_, since_ms) in picture.pinned.items()}
    yield gauge("lso_pinned_seconds", _by_labels(pinned))
    if picture.caught_up_ms is not None:
        yield gauge("source_lag_seconds", {(): _age_s(now_ms, picture.caught_up_ms)})


def _of_progress(progress: Progress, picture: Picture | None) -> Iterator[Family]:
    """The gauges of the query's progress."""
    left, pinned = (picture.left, picture.pinned) if picture is not None else ({}, {})
    yield gauge("source_lag_offsets", {(): progress.lag_offsets(left)})
    yield gauge("last_batch_phase_seconds", {(phase,): ms / 1000 for phase, ms in progress.phases_ms.items()})
    yield gauge("watched_partitions", {(log,): count for log, count in Counts(map(log_of, progress.ends)).items()})
    yield gauge("beyond_budget_partitions", {(): len(progress.looked)})
    hidden = {
        partition: max(0, progress.ends[partition] - start)
        for partition, (start, _) in pinned.items()
        if partition in progress.ends
    }
    yield gauge("hidden_records", _by_labels(hidden))


def histograms(collected: Sequence[Latencies]) -> Iterator[Family]:
    """The histograms of the coordinators' latencies, one family for each stage."""
    for stage, name in STAGES.items():
        family = HistogramMetricFamily(f"{NAMESPACE}_{name}", _SPEC[name].meaning, labels=_SPEC[name].labels)
        for latencies in (latency for latency in collected if latency.stage is stage):
            total, buckets = 0, []
            for bound, count in zip((*BOUNDS_MS, None), latencies.counts, strict=True):
                total += count
                buckets.append(("+Inf" if bound is None else str(bound / 1000), total))
            family.add_metric([COMPLETE_OF[latencies.target_state]], buckets, latencies.sum_ms / 1000)
        yield family


def gauge(name: str, values: Mapping[tuple[str, ...], float]) -> Family:
    """A gauge of the table, with a value for each combination of labels."""
    spec = _SPEC[name]
    family = GaugeMetricFamily(spec.full_name, spec.meaning, labels=spec.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def log_of(partition: TopicPartition) -> str:
    """The value of the label `log` for a partition."""
    return "coordinator" if is_log(partition) else "data"


def _by_labels(values: Mapping[TopicPartition, float]) -> dict[tuple[str, ...], float]:
    return {(partition.topic, str(partition.partition)): value for partition, value in values.items()}


def _age_s(now_ms: TimestampMs, since_ms: TimestampMs | None) -> float:
    return elapsed(since_ms, now_ms) / 1000 if since_ms is not None else 0.0


# All metrics of a watch, and what changes them.

_NO_PROCESS = "none"  # no directory of /proc
UP_WITHIN_MS = DurationMs(15_000)
_MAKE: dict[Kind, Callable[..., Any]] = {Kind.COUNTER: Counter, Kind.GAUGE: Gauge, Kind.HISTOGRAM: Histogram}


class Metrics(Collector):
    """The registry of the metrics, and all updates of it.

    Attributes:
        registry: the registry that a scrape reads.
        progress: returns the progress of the running query; None while it is unknown.
        cluster_id: set once it is known.
        cluster_name: how the cluster is called; None for its id.
        lease_group: the consumer group of the watchers of the same topics; set once it is known.
        jvm_pid: the process of Spark's JVM on this machine; None before it runs.
    """

    def __init__(self, now_ms: Callable[[], TimestampMs]) -> None:
        # The start of the process is the beginning of each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.progress: Callable[[], Progress | None] = lambda: None
        self.is_page_up: Callable[[], bool] = lambda: False
        self.cluster_id = ""
        self.cluster_name: str | None = None
        self.lease_group = ""
        self.jvm_pid: int | None = None
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._picture: Picture | None = None
        self._tally = Tally()
        self._counted_batch: int | None = None
        self._confirmations: Counts[str] = Counts()
        self._failures: Counts[str] = Counts()
        self._delivered: Counts[str] = Counts()
        self._refused: Counts[str] = Counts()
        self._passed_over: Counts[str] = Counts()
        self._acted: dict[str, Action | None] = {}
        self._made: dict[str, Any] = {}
        self._counted_incidents = set(INITIAL_SERIES["open_incidents"])
        for spec in METRICS:
            if not spec.is_read:
                buckets = {"buckets": spec.buckets} if spec.buckets else {}
                name, make = spec.full_name, _MAKE[spec.kind]
                self._made[spec.name] = make(name, spec.meaning, spec.labels, registry=self.registry, **buckets)
        self._begin_at_zero()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        ProcessCollector(f"{NAMESPACE}_jvm", lambda: self.jvm_pid or _NO_PROCESS, registry=self.registry)

    def _begin_at_zero(self) -> None:
        for name, series in INITIAL_SERIES.items():
            for labels in series:
                self._made[name].labels(*labels)
        nothing = (0,) * (len(BOUNDS_MS) + 1)
        self._tally.add(Latencies(stage, state, NO_TIME, nothing) for stage in STAGES for state in TARGETS[stage])

    @property
    def is_judging(self) -> bool:
        """Whether the last evaluated barrier was listed within the last 15 s."""
        return self._picture is not None and self._now_ms() - self._picture.data_listed_ms <= UP_WITHIN_MS

    def query_starts(self, ledger: RunningLedger) -> None:
        """Counts a start of the streaming query; the ledger was opened for it."""
        self._made["query_starts_total"].inc()
        self._take_ledger(ledger)

    def count_refused_connection(self) -> None:
        """Counts a connection that the HTTP server has refused."""
        self._made["refused_connections_total"].inc()

    def take_access(self, access: CoordinatorAccess) -> None:
        """Sets how the coordinators' view is known."""
        for kind in CoordinatorAccess:
            self._made["coordinator_view"].labels(kind).set(int(kind is access))

    def take_exposures(self, counts: Mapping[ExposureSeverity, int]) -> None:
        """Sets how many findings the audit has."""
        for severity, count in counts.items():
            self._made["exposures"].labels(severity).set(count)

    def on_event(self, event: IncidentEvent) -> None:
        """Counts an incident event."""
        self._made["events_total"].labels(event.verdict, event.status).inc()
        done = event.action
        if done is not None and done != self._acted.get(event.incident_id):
            came_to = done.refusal or done.result or "none"
            self._made["abort_decisions_total"].labels(done.decision, came_to).inc()
        self._acted[event.incident_id] = done
        if event.status is IncidentStatus.OPENED:
            latency = self._made["detection_latency_seconds"].labels(event.verdict)
            latency.observe(event.detection_latency_ms / 1000)

    def on_batch(
        self,
        batch_id: int,
        emitted: Sequence[Finding],
        ledger: RunningLedger,
        *,
        is_ready: bool,
        evidence: MissingEvidence,
    ) -> None:
        """Updates the metrics at the end of a micro-batch, after the ledger has processed its output."""
        now_ms = self._now_ms()
        self._gauges(emitted)
        self._take_evidence(emitted, evidence)
        self._made["ready"].set(int(is_ready))
        if self._counted_batch is None or batch_id > self._counted_batch:
            self._counted_batch = batch_id
            self._count(emitted, now_ms)
        self._take_ledger(ledger)

    def _count(self, emitted: Iterable[Finding], now_ms: TimestampMs) -> None:
        self._made["batches_total"].inc()
        if self._picture is not None:
            self._made["batch_duration_seconds"].observe(elapsed(self._picture.data_listed_ms, now_ms) / 1000)
        for finding in emitted:
            match finding:
                case PartitionAlarm(notice):
                    self._made["partition_notices_total"].labels(notice.kind).inc()
                    if notice.is_decode_failure:
                        self._made["decode_failures_total"].inc()
                case RequestsThrottled(throttled_ms):
                    for request, length_ms in throttled_ms:
                        self._made["throttled_seconds_total"].labels(request).inc(length_ms / 1000)
                case ViewHealed():
                    self._made["view_mismatches_total"].labels(finding.mismatch).inc()
                case CensusResult(failed, is_round=True):
                    self._made["census_rounds_total"].labels("incomplete" if failed else "complete").inc()
                case TransactionsEnded(latencies):
                    with self._lock:
                        self._tally.add(latencies)

    def _gauges(self, emitted: Sequence[Finding]) -> None:
        counts = [finding for finding in emitted if isinstance(finding, BucketCount)]
        if not counts:
            return
        listed_ms, before = counts[0].data_listed_ms, self._picture
        caught_up_ms = before.caught_up_ms if before is not None else None
        self._picture = Picture(
            data_listed_ms=listed_ms,
            caught_up_ms=listed_ms if not counts[0].behind else caught_up_ms,
            oldest_open_ms=_earliest(count.oldest_open_ms for count in counts),
            oldest_prepared_ms=_earliest(count.oldest_prepared_ms for count in counts),
            pinned=_pinned(emitted),
            left={
                finding.partition: finding.from_offset for finding in emitted if isinstance(finding, ReadLimitReached)
            },
        )
        self._clocks(counts[0].clocks)
        states: Counts[str] = Counts()
        waiting: Counts[str] = Counts()
        for count in counts:
            states.update(dict(count.states))
            waiting.update(dict(count.waiting))
        for state in (TransactionState.ONGOING, *PREPARED, UNOWNED, OWNER_UNKNOWN):
            self._made["transactions"].labels(state).set(states[state])
        for state in PREPARED:
            self._made["transactions_pending_markers"].labels(COMPLETED_AS[state]).set(states[state])
        self._made["unproven_transactions"].clear()
        for why, number in waiting.items():
            self._made["unproven_transactions"].labels(why).set(number)
        self._made["unread_gaps"].set(sum(isinstance(finding, OutstandingGap) for finding in emitted))

    def _take_evidence(self, emitted: Sequence[Finding], evidence: MissingEvidence) -> None:
        """Updates the metrics of missing evidence."""
        for finding in emitted:
            if isinstance(finding, Unproven):
                logs = Counts(log_of(partition) for partition in {*finding.partitions, *evidence.unproven_by_census})
                logs["coordinator"] = max(logs["coordinator"], int(is_log_missing(emitted)))
                for log in ("data", "coordinator"):
                    self._made["unproven_partitions"].labels(log).set(logs[log])
        self._made["undescribed_partitions"].set(len(evidence.undescribed))

    def _clocks(self, clocks: Iterable[tuple[BrokerId, Clock]]) -> None:
        """Sets each broker's clock offset: the middle of the possible range, and half its width as the uncertainty."""
        middle, uncertain = self._made["broker_clock_offset_seconds"], self._made["broker_clock_uncertainty_seconds"]
        middle.clear()
        uncertain.clear()
        for broker, clock in clocks:
            if clock.highest_ms is not None:
                middle.labels(str(broker)).set((clock.lowest_ms + clock.highest_ms) / 2000)
                uncertain.labels(str(broker)).set((clock.highest_ms - clock.lowest_ms) / 2000)

    def take_passed_over(self, counts: Mapping[SkipReason, int]) -> None:
        """Updates the counters of records of the events topic that are not events; `counts` are totals."""
        for why, total in counts.items():
            self._rise("events_passed_over_total", self._passed_over, why, total, (why,))

    def _take_ledger(self, ledger: RunningLedger) -> None:
        incidents = ledger.open_incidents
        self._made["speaks"].labels(self.lease_group).set(int(ledger.speaks))
        self._acted = {event.incident_id: event.action for event in incidents}
        counts: Counts[tuple[str, ...]] = Counts(
            (event.verdict, event.severity, owner_label(event)) for event in incidents
        )
        gauge = self._made["open_incidents"]
        self._counted_incidents |= counts.keys()
        for labels in self._counted_incidents:
            gauge.labels(*labels).set(counts[labels])
        for key, total in ledger.counts.items():
            verdict, _, answer = key.partition(":")
            if answer:
                self._rise("confirmations_total", self._confirmations, key, total, (verdict, answer))
        for outbox in ledger.outboxes:
            self._made["sink_waiting_events"].labels(outbox.name).set(outbox.waiting)
            self._rise("sink_failures_total", self._failures, outbox.name, outbox.failures, (outbox.name,))
            self._take_tally(outbox.name, outbox.tally)

    def _take_tally(self, sink: str, tally: DeliveryCounts) -> None:
        self._rise("sink_delivered_events_total", self._delivered, sink, tally.delivered, (sink,))
        self._rise("sink_refused_events_total", self._refused, sink, tally.refused, (sink,))
        self._made["sink_lag_seconds"].labels(sink).set(_age_s(self._now_ms(), tally.oldest_ms))
        self._made["sink_stopped"].labels(sink).set(int(tally.is_stopped))

    def _rise(self, name: str, seen: Counts[str], key: str, total: int, labels: tuple[str, ...]) -> None:
        """Adds the increase of a total that is counted elsewhere, and that restarts at zero with a new ledger."""
        risen = total - seen[key] if total >= seen[key] else total
        seen[key] = total
        self._made[name].labels(*labels).inc(risen)

    def collect(self) -> Iterator[Family]:
        """The metrics whose values are computed at the scrape."""
        yield gauge("up", {(): int(self.is_judging)})
        yield gauge("page_up", {(): int(self.is_page_up())})
        name = self.cluster_name if self.cluster_name is not None else self.cluster_id
        yield gauge("build_info", {(version(NAMESPACE), self.cluster_id, name): 1})
        picture, progress = self._picture, self.progress()
        if picture is not None:
            yield from _of_picture(picture, self._now_ms())
        if progress is not None:
            yield from _of_progress(progress, picture)
        with self._lock:
            collected = self._tally.latencies()
        yield from histograms(collected)


def _pinned(emitted: Iterable[Finding]) -> dict[TopicPartition, tuple[Offset, TimestampMs]]:
    """The start of the lowest open data of each partition, and when it was first seen; only if open for a while."""
    pinned: dict[TopicPartition, tuple[Offset, TimestampMs]] = {}
    for finding in emitted:
        if isinstance(finding, OpenTransactions):
            for transaction in finding.transactions:
                for partition, start, since_ms in transaction.spans:
                    pinned[partition] = min(pinned.get(partition, (start, since_ms)), (start, since_ms))
    return pinned


def _earliest(times: Iterable[TimestampMs | None]) -> TimestampMs | None:
    return min((time for time in times if time is not None), default=None)
