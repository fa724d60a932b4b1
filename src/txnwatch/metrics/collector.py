"""The values of the Prometheus metrics, from the output of the state and the ledger, once a micro-batch in the driver.

Counters count from the start of this process. A micro-batch that Spark runs again after a restart of its query is
counted once. Gauges come from the output of the last micro-batch. Ages are computed at the scrape, so that they grow
between micro-batches. An unknown value is absent, not zero.
"""

from __future__ import annotations

import threading
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from txnwatch.metrics.label_values import COMPLETE, INITIAL_SERIES, PREPARED, STAGES, TARGETS
from txnwatch.metrics.metric import NAMESPACE, Kind
from txnwatch.metrics.scrape import Picture, gauge, histograms, log_of, of_picture, of_progress
from txnwatch.metrics.table import METRICS
from txnwatch.sinks.incidents.ledger import Ledger
from txnwatch.state.detection.open_transactions import OWNER_UNKNOWN, UNOWNED
from txnwatch.state.model.broker_clocks import Clock
from txnwatch.state.model.completion_latency import BOUNDS_MS, Latencies, Tally
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.errors import SkipReason
from txnwatch.state.model.findings import (
    BucketCount,
    CensusIncomplete,
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
from txnwatch.state.model.ids import BrokerId, TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import Action, IncidentStatus
from txnwatch.state.model.quantities import NO_TIME, DurationMs, Offset, TimestampMs, elapsed
from txnwatch.state.model.transaction import TransactionState
from txnwatch.streaming.job.progress import Progress
from txnwatch.watch.missing_evidence import MissingEvidence, is_log_missing

UP_WITHIN_MS = DurationMs(15_000)
_MAKE: dict[Kind, Callable[..., Any]] = {Kind.COUNTER: Counter, Kind.GAUGE: Gauge, Kind.HISTOGRAM: Histogram}


class Metrics(Collector):
    """The registry of the metrics, and all updates of it.

    Attributes:
        registry: the registry that a scrape reads.
        progress: returns the progress of the running query; None while it is unknown.
        cluster_id: set once it is known.
    """

    def __init__(self, now_ms: Callable[[], TimestampMs]) -> None:
        self.registry = CollectorRegistry()
        self.progress: Callable[[], Progress | None] = lambda: None
        self.cluster_id = ""
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._picture: Picture | None = None
        self._tally = Tally()
        self._counted_batch: int | None = None
        self._confirmations: Counts[str] = Counts()
        self._failures: Counts[str] = Counts()
        self._passed_over: Counts[str] = Counts()
        self._acted: dict[str, Action | None] = {}
        self._made: dict[str, Any] = {}
        for spec in METRICS:
            if not spec.is_read:
                buckets = {"buckets": spec.buckets} if spec.buckets else {}
                name, make = spec.full_name, _MAKE[spec.kind]
                self._made[spec.name] = make(name, spec.meaning, spec.labels, registry=self.registry, **buckets)
        self._begin_at_zero()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def _begin_at_zero(self) -> None:
        for name, series in INITIAL_SERIES.items():
            for labels in series:
                self._made[name].labels(*labels)
        nothing = (0,) * (len(BOUNDS_MS) + 1)
        self._tally.add(Latencies(stage, state, NO_TIME, nothing) for stage in STAGES for state in TARGETS[stage])

    @property
    def is_judging(self) -> bool:
        """Whether a barrier was evaluated within the last 15 s."""
        return self._picture is not None and self._now_ms() - self._picture.evaluated_ms <= UP_WITHIN_MS

    def query_starts(self, ledger: Ledger) -> None:
        """Counts a start of the streaming query; the ledger was opened for it."""
        self._made["query_starts_total"].inc()
        self._take_ledger(ledger)

    def count_refused_connection(self) -> None:
        """Counts a connection that the metrics server has refused."""
        self._made["refused_connections_total"].inc()

    def take_access(self, access: CoordinatorAccess) -> None:
        """Sets how the coordinators' view is known."""
        for one in CoordinatorAccess:
            self._made["coordinator_view"].labels(one).set(int(one is access))

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
        self, batch_id: int, emitted: Sequence[Finding], ledger: Ledger, *, is_ready: bool, evidence: MissingEvidence
    ) -> None:
        """Updates the metrics at the end of a micro-batch, after the ledger has processed its output."""
        now_ms = self._now_ms()
        self._gauges(emitted, now_ms)
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
                case CensusIncomplete(failed):
                    self._made["census_rounds_total"].labels("incomplete" if failed else "complete").inc()
                case TransactionsEnded(latencies):
                    with self._lock:
                        self._tally.add(latencies)

    def _gauges(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> None:
        counts = [finding for finding in emitted if isinstance(finding, BucketCount)]
        if not counts:
            return
        listed_ms, before = counts[0].data_listed_ms, self._picture
        caught_up_ms = before.caught_up_ms if before is not None else None
        self._picture = Picture(
            evaluated_ms=now_ms,
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
            self._made["transactions_pending_markers"].labels(COMPLETE[state]).set(states[state])
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

    def _take_ledger(self, ledger: Ledger) -> None:
        incidents = ledger.open_incidents
        self._acted = {event.incident_id: event.action for event in incidents}
        known: Counts[tuple[str, ...]] = Counts((event.verdict, event.severity) for event in incidents)
        gauge = self._made["open_incidents"]
        for labels in {*known, *INITIAL_SERIES["open_incidents"]}:
            gauge.labels(*labels).set(known[labels])
        for key, total in ledger.counts.items():
            verdict, _, answer = key.partition(":")
            if answer:
                self._rise("confirmations_total", self._confirmations, key, total, (verdict, answer))
        for outbox in ledger.outboxes:
            self._made["sink_waiting_events"].labels(outbox.name).set(outbox.waiting)
            self._rise("sink_failures_total", self._failures, outbox.name, outbox.failures, (outbox.name,))

    def _rise(self, name: str, seen: Counts[str], key: str, total: int, labels: tuple[str, ...]) -> None:
        """Adds the increase of a total that is counted elsewhere, and that restarts at zero with a new ledger."""
        risen = total - seen[key] if total >= seen[key] else total
        seen[key] = total
        self._made[name].labels(*labels).inc(risen)

    def collect(self) -> Iterator[Family]:
        """The metrics whose values are computed at the scrape."""
        yield gauge("up", {(): int(self.is_judging)})
        yield gauge("build_info", {(version(NAMESPACE), self.cluster_id): 1})
        picture, progress = self._picture, self.progress()
        if picture is not None:
            yield from of_picture(picture, self._now_ms())
        if progress is not None:
            yield from of_progress(progress, picture)
        with self._lock:
            collected = self._tally.latencies()
        yield from histograms(collected)


def _pinned(emitted: Iterable[Finding]) -> dict[TopicPartition, tuple[Offset, TimestampMs]]:
    """The start of the lowest open data of each partition, and when it was first seen; only if open for a while."""
    found: dict[TopicPartition, tuple[Offset, TimestampMs]] = {}
    for finding in emitted:
        if isinstance(finding, OpenTransactions):
            for transaction in finding.transactions:
                for partition, start, since_ms in transaction.spans:
                    found[partition] = min(found.get(partition, (start, since_ms)), (start, since_ms))
    return found


def _earliest(times: Iterable[TimestampMs | None]) -> TimestampMs | None:
    return min((time for time in times if time is not None), default=None)
