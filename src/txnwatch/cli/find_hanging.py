"""`txnwatch find-hanging`: the whole cluster once, both views, no threshold; the proof is in state/screening.py."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.asking import add_connection_flags, add_output_flags, add_partition_flags, ask, origin_of
from txnwatch.cli.output import Answer, Duration, Line, NotChecked, Time
from txnwatch.sinks.commands import Origin
from txnwatch.sinks.compose import hanging_event, transaction_event
from txnwatch.sinks.search import Search, Searcher
from txnwatch.state.emitted import SpanCandidate
from txnwatch.state.errors import BrokerError, ConfigError
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.incident import IncidentEvent
from txnwatch.state.transaction import CoordinatorView
from txnwatch.streaming.admin import ClusterAdmin
from txnwatch.streaming.clock import wall_clock_ms
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.coordinator_log import read_views

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One finding. `duration_ms` is the time since the last write, for a transaction as a whole since its start."""

    verdict: str
    transactional_id: str | None
    topic: str | None
    partition: int | None
    producer_id: int
    producer_epoch: int | None
    coordinator_epoch: int | None
    start_offset: int | None
    last_timestamp_ms: Time | None
    duration_ms: Duration
    reason: str | None
    transaction_state: str | None
    transaction_timeout_ms: int | None
    overdue_ms: Duration | None
    hidden_records: int | None
    expected_outcome: str
    partitions: tuple[str, ...]
    next: Line | None


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the verb."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "find-hanging",
        help="prove what hangs in a cluster now, and show what is late or stuck",
        description="Looks once at every partition and coordinator: what hangs, what is late by its own timeout, "
        "and whose markers are outstanding. What did not answer is listed as not checked.",
    )
    add_connection_flags(parser)
    add_partition_flags(parser, "this topic only", is_required=False)
    parser.add_argument("--broker-id", type=int, metavar="ID", help="only partitions that this broker leads")
    parser.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=0,
        metavar="MINUTES",
        help="only what was last written so long ago; the proof needs no age (default: %(default)s)",
    )
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Looks once; 0 where nothing was found and all was asked."""
    if parsed.partition is not None and parsed.topic is None:
        raise ConfigError("--partition needs --topic")
    return ask(parsed, lambda cluster: _answer(cluster, parsed))


def _answer(cluster: Cluster, parsed: argparse.Namespace) -> Answer:
    partitions = selected(cluster, parsed.topic, parsed.partition, parsed.broker_id)
    origin = origin_of(cluster, parsed)
    with _progress(len(partitions)) as progress:
        found = searcher_of(cluster, progress).search(
            partitions, _old_enough(parsed.max_transaction_timeout * _MINUTE_MS)
        )
    is_narrowed = parsed.topic is not None or parsed.broker_id is not None
    events = list(_events(origin, found, set(partitions) if is_narrowed else None))
    checked = sum(reading.problem is None for reading in found.readings.values())
    return Answer(
        command="find-hanging",
        cluster_id=origin.cluster_id,
        row_type=FoundRow,
        rows=[_row(event) for event in events],
        not_checked=tuple(NotChecked(what, why) for what, why in found.not_checked.items()),
        summary=_summary(found, len(events), checked),
        found=bool(events),
    )


def selected(
    cluster: Cluster, topic: str | None, partition: int | None = None, broker: int | None = None
) -> list[TopicPartition]:
    """The data partitions that the flags name; all of them without any.

    Raises:
        BrokerError: nothing of that name is in the cluster, or not for this user.
    """
    topics = cluster.known.topics
    if topic is not None and topic not in topics:
        raise BrokerError(f"topic {topic}: not in the cluster, or this user has no right to describe it")
    found = [
        TopicPartition(name, number)
        for name, info in sorted(topics.items())
        if name == topic or (topic is None and name != TRANSACTION_STATE_TOPIC)
        for number, at in sorted(info.partitions.items())
        if partition in (None, number) and broker in (None, at.leader)
    ]
    if not found and partition is not None:
        raise BrokerError(f"topic {topic} has no partition {partition}: it has {len(topics[str(topic)].partitions)}")
    if broker is not None and broker not in cluster.known.brokers:
        raise BrokerError(f"broker {broker}: not among the cluster's brokers {sorted(cluster.known.brokers)}")
    return found


def searcher_of(cluster: Cluster, progress: Callable[[int], None] = lambda _: None) -> Searcher:
    """The search, over a real cluster."""

    def views(producer_ids: Collection[int]) -> tuple[dict[int, CoordinatorView], dict[str, str]]:
        found = read_views(cluster, producer_ids)
        return found.views, {str(partition): why for partition, why in found.problems.items()}

    return Searcher(ClusterAdmin(cluster), views, wall_clock_ms, progress=progress)


def _old_enough(at_least_ms: int) -> Callable[[SpanCandidate], bool]:
    """A client's clock in the future tells no age; such a span is kept."""

    def is_wanted(span: SpanCandidate) -> bool:
        age_ms = span.data_listed_ms - span.span.last_timestamp_ms
        return at_least_ms <= 0 or age_ms < 0 or age_ms > at_least_ms

    return is_wanted


def _events(origin: Origin, found: Search, wanted: set[TopicPartition] | None) -> Iterator[IncidentEvent]:
    now_ms = wall_clock_ms()
    for span, proof in sorted(found.hanging, key=lambda one: (one[0].partition, one[0].producer_id)):
        yield hanging_event(origin, span, proof, None, now_ms)
    for transaction, confirmed in found.overdue:
        assert confirmed.description is not None
        if wanted is None or wanted & confirmed.description.partitions:
            yield transaction_event(origin, transaction, confirmed, now_ms)


def _row(event: IncidentEvent) -> FoundRow:
    since_ms = event.last_write_ms if event.last_write_ms is not None else event.open_since_ms
    is_span = event.topic is not None
    return FoundRow(
        verdict=event.verdict,
        transactional_id=event.transactional_id,
        topic=event.topic,
        partition=event.partition,
        producer_id=event.producer_id,
        producer_epoch=event.producer_epoch,
        coordinator_epoch=event.coordinator_epoch,
        start_offset=event.txn_start_offset,
        last_timestamp_ms=event.last_write_ms,
        duration_ms=event.time_ms - since_ms,
        reason=event.reason,
        transaction_state=event.transaction_state,
        transaction_timeout_ms=event.transaction_timeout_ms,
        overdue_ms=event.overdue_ms,
        hidden_records=event.hidden_records,
        expected_outcome=event.expected_outcome,
        partitions=() if is_span else tuple(event.evidence["coordinator_partitions"]),
        next=event.suggested_command,
    )


def _summary(found: Search, events: int, checked: int) -> str:
    covered = len(found.covered)
    what = f"{len(found.hanging)} hanging, {events - len(found.hanging)} late, long running or stuck"
    nothing = (
        "nothing found, but not all was checked" if found.not_checked else "nothing hangs, nothing is late or stuck"
    )
    said = what if events else nothing
    spans = f"{covered} open span{'s' if covered != 1 else ''} held by live transactions"
    parts = f", {len(found.not_checked)} not checked" if found.not_checked else ""
    return f"{said}: {checked} partitions checked{parts}, {spans}"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where a person is looking and it takes more than a moment."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where it is seen
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading partitions", total=total)
        yield lambda count: bar.advance(task, count)
