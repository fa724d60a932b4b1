"""The metrics whose values are computed at the scrape, so that ages grow between two micro-batches."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from txnwatch.metrics.label_values import STAGES
from txnwatch.metrics.metric import NAMESPACE
from txnwatch.metrics.table import METRICS
from txnwatch.state.model.completion_latency import BOUNDS_MS, Latencies
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import Offset, TimestampMs, elapsed
from txnwatch.streaming.job.progress import Progress
from txnwatch.watch.missing_evidence import is_of_log

_SPEC = {spec.name: spec for spec in METRICS}


@dataclass(frozen=True, slots=True)
class Picture:
    """The facts of the last evaluated barrier that a scrape needs; times are our clock.

    Attributes:
        caught_up_ms: when everything was last read to its listed end; None if that has not happened yet.
    """

    evaluated_ms: TimestampMs
    data_listed_ms: TimestampMs
    caught_up_ms: TimestampMs | None
    oldest_open_ms: TimestampMs | None
    oldest_prepared_ms: TimestampMs | None
    pinned: Mapping[TopicPartition, tuple[Offset, TimestampMs]]
    left: Mapping[TopicPartition, Offset]


def of_picture(picture: Picture, now_ms: TimestampMs) -> Iterator[Family]:
    """The gauges of the last evaluated barrier; an unknown value is absent."""
    yield gauge("last_barrier_timestamp_seconds", {(): picture.data_listed_ms / 1000})
    yield gauge("oldest_open_transaction_seconds", {(): _age_s(now_ms, picture.oldest_open_ms)})
    yield gauge("oldest_pending_transaction_seconds", {(): _age_s(now_ms, picture.oldest_prepared_ms)})
    pinned = {partition: _age_s(now_ms, since_ms) for partition, (_, since_ms) in picture.pinned.items()}
    yield gauge("lso_pinned_seconds", _by_labels(pinned))
    if picture.caught_up_ms is not None:
        yield gauge("source_lag_seconds", {(): _age_s(now_ms, picture.caught_up_ms)})


def of_progress(progress: Progress, picture: Picture | None) -> Iterator[Family]:
    """The gauges of the query's progress."""
    left, pinned = (picture.left, picture.pinned) if picture is not None else ({}, {})
    yield gauge("source_lag_offsets", {(): progress.lag_offsets(left)})
    yield gauge("last_batch_phase_seconds", {(phase,): ms / 1000 for phase, ms in progress.phases_ms.items()})
    yield gauge("watched_partitions", {(log,): count for log, count in Counts(map(log_of, progress.ends)).items()})
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
        for latencies in (one for one in collected if one.stage is stage):
            total, buckets = 0, []
            for bound, count in zip((*BOUNDS_MS, None), latencies.counts, strict=True):
                total += count
                buckets.append(("+Inf" if bound is None else str(bound / 1000), total))
            family.add_metric([latencies.target_state], buckets, latencies.sum_ms / 1000)
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
    return "coordinator" if is_of_log(partition) else "data"


def _by_labels(values: Mapping[TopicPartition, float]) -> dict[tuple[str, ...], float]:
    return {(partition.topic, str(partition.partition)): value for partition, value in values.items()}


def _age_s(now_ms: TimestampMs, since_ms: TimestampMs | None) -> float:
    return elapsed(since_ms, now_ms) / 1000 if since_ms is not None else 0.0
