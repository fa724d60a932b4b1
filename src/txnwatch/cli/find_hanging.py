"""`txnwatch find-hanging`: checks a cluster once, its partitions and its coordinators, without a threshold of age.

The proof is in state/evidence/screening.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

from txnwatch.cli.command_origin import origin_of
from txnwatch.cli.compose import searcher_of
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_events_flags,
    add_foreign_flag,
    add_output_flags,
    add_owners_flag,
    add_partition_flags,
    add_threshold_flags,
    ask,
    id32,
)
from txnwatch.cli.output import (
    DETAIL,
    IN_NOTES,
    WIDE,
    CommandAnswer,
    Duration,
    LeftOut,
    Name,
    Names,
    NotChecked,
    Time,
    row_of,
)
from txnwatch.state.evidence.hurt_groups import Hold, Hurt, groups_of, holds_of, hurt_by
from txnwatch.state.evidence.screening import FOREIGN, Search, held_by, open_data
from txnwatch.state.evidence.written import Written, written
from txnwatch.state.incidents.event_builder import named, span_event, transaction_event
from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    CoordinatorEpoch,
    DurationMs,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    is_foreign,
)
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.telling.commands import Origin
from txnwatch.state.telling.published import tell_found
from txnwatch.state.telling.renderings import first_command
from txnwatch.state.telling.statements import Told
from txnwatch.state.text import some
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transaction_requests import NEVER_USED_NOTE
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import why_not_shown
from txnwatch.streaming.log.hidden_participants import hidden_of

_MINUTE_MS = DurationMs(60_000)


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One finding; without `--wide`, the table has what somebody needs who was just woken up.

    Attributes:
        topic, partition, start_offset: of open data that hangs; None for a transaction as a whole.
        partitions: that partition, or those of the transaction.
        last_timestamp_ms: the timestamp of its last write, by its client's clock, whatever that says.
        duration_ms: the time since its last write, never more than the logs allow (state/evidence/written.py); None if
            nothing shows it. For a transaction as a whole, the time since its start.
        affected_groups: the groups that stop at it if they read with read_committed.
        published_outcome, published_by: the expected outcome as a watcher has published it, if it is not known here.
        waiting_groups: the groups that wait for their committed offsets, because these are pending in it.
    """

    verdict: str
    transactional_id: Name | None
    topic: Annotated[str | None, WIDE]
    partition: Annotated[int | None, WIDE]
    partitions: Names
    producer_id: ProducerId
    producer_epoch: ProducerEpoch | None
    coordinator_epoch: Annotated[CoordinatorEpoch | None, WIDE]
    start_offset: Annotated[Offset | None, WIDE]
    last_timestamp_ms: Annotated[Time | None, WIDE]
    duration_ms: Duration | None
    affected_groups: Names
    waiting_groups: Names
    reason: Annotated[str | None, WIDE]
    transaction_state: Annotated[str | None, WIDE]
    transaction_timeout_ms: Annotated[DurationMs | None, WIDE]
    overdue_ms: Annotated[Duration | None, WIDE]
    hidden_records: Annotated[int | None, WIDE]
    expected_outcome: Annotated[str, WIDE]
    outcome_doubt: Annotated[str | None, WIDE]
    published_outcome: Annotated[str | None, WIDE]
    published_by: Annotated[Name | None, WIDE]
    owner: Annotated[str | None, DETAIL]
    contact: Annotated[str | None, DETAIL]
    application: Annotated[str | None, WIDE]
    next: Annotated[str | None, IN_NOTES]
    told: Annotated[tuple[Told, ...], IN_NOTES]

    @property
    def subject(self) -> str:
        """What is named in the text."""
        return ", ".join(self.partitions) if self.topic is not None else str(self.transactional_id)


class _Found(NamedTuple):
    """One finding: its event, what it has open on the partitions that were read, and when that was written.

    Attributes:
        blocked: those of its partitions on which no marker can be written.
        is_open: those of its partitions on which its data is open; None if that is not known.
    """

    event: IncidentEvent
    holds: list[Hold]
    blocked: Sequence[PartitionReplicas]
    written: Written | None = None
    is_open: Container[str] | None = None


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "find-hanging",
        help="prove which transactions hang now, and show those that are late or stuck",
        description="Checks every partition and every coordinator once. It shows the transactions that hang, those "
        "that are long running or late by their own timeout, and those whose markers are outstanding. What could not "
        "be checked is listed as not checked.",
    )
    add_connection_flags(parser)
    add_threshold_flags(parser)
    add_foreign_flag(parser)
    add_owners_flag(parser)
    add_events_flags(parser)
    add_partition_flags(parser, "only this topic", is_required=False)
    parser.add_argument("--broker-id", type=id32, metavar="ID", help="only partitions that this broker leads")
    parser.add_argument(
        "--max-transaction-timeout",
        type=id32,
        default=0,
        metavar="MINUTES",
        help="show only transactions whose last write is older than this, and count the others; a hang is proven at "
        "any age (default: %(default)s)",
    )
    add_output_flags(
        parser,
        found_if="the answer has a transaction: one that hangs, is long running or late, or waits for markers",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Checks once; exit code 3 for a finding with `--fail-on-found`, 1 if not all could be checked, else 0."""
    if parsed.partition is not None and parsed.topic is None:
        raise ConfigError("--partition needs --topic")
    policy: DetectionPolicy = parsed.policy
    return ask(parsed, lambda cluster: _answer(cluster, parsed, policy))


def _answer(cluster: Cluster, parsed: argparse.Namespace, policy: DetectionPolicy) -> CommandAnswer:
    selection = _selected(cluster, parsed.topic, parsed.partition, parsed.broker_id)
    partitions = [
        partition
        for partition in selection
        if parsed.topic is not None or not is_foreign(partition.topic, parsed.foreign_topics)
    ]
    origin = origin_of(cluster, parsed)
    age = AgeFilter(parsed.max_transaction_timeout)
    with _progress(len(partitions)) as progress:
        searcher = searcher_of(cluster, policy, parsed.foreign_topics, progress)
        if parsed.topic is None:
            searcher.hidden = partial(hidden_of, cluster, foreign_topics=parsed.foreign_topics)
        search = searcher.search(partitions, age.is_wanted)
    where = scope(parsed.topic, parsed.partition, parsed.broker_id)
    findings, elsewhere = _findings(origin, search, set(partitions) if where else None)
    groups = groups_of(
        ClusterGroups(cluster), (hold for finding in findings for hold in finding.holds), wall_clock_ms()
    )
    with_hurt = [(finding, hurt_by(finding.holds, groups)) for finding in findings]
    left_out = (*age.left_out(), *_elsewhere(elsewhere, where), *_foreign(len(selection) - len(partitions)))
    return CommandAnswer(
        command="find-hanging",
        cluster_id=origin.cluster_id,
        row_type=FoundRow,
        rows=[
            found_row(
                *(origin, named(hurt.added_to(finding.event), origin.owners), hurt),
                written_at=finding.written,
                blocked=finding.blocked,
                is_open=finding.is_open,
            )
            for finding, hurt in with_hurt
        ],
        not_checked=tuple(NotChecked(what, why) for what, why in search.not_checked.items()),
        left_out=left_out,
        summary=summary(search, len(findings), where, is_all_judged=not age.younger),
        found=bool(findings),
        notes=(
            *(() if search.has_ids else (NEVER_USED_NOTE,)),
            *impossible_stamps(findings),
            *(f"not all groups are known: {problem}" for problem in groups.problems),
        ),
        also={"groups_not_known": [{"why": problem} for problem in groups.problems]},
    )


@dataclass(slots=True)
class AgeFilter:
    """Selects open spans that were last written more than `minutes` ago; counts the younger ones.

    A timestamp in the future gives no age, nor does a batch without a timestamp: such a span is selected.
    """

    minutes: int
    younger: int = 0

    def is_wanted(self, span: SpanCandidate) -> bool:
        """Whether the span is to be judged; called once for each open span."""
        written_ms = span.span.last_timestamp_ms
        if written_ms is None:
            return True
        age_ms = span.data_listed_ms - written_ms
        if self.minutes <= 0 or age_ms < 0 or age_ms > self.minutes * _MINUTE_MS:
            return True
        self.younger += 1
        return False

    def left_out(self) -> Iterator[LeftOut]:
        """The spans that were not judged; they may hang."""
        if self.younger:
            why = f"last written less than {self.minutes} minutes ago (--max-transaction-timeout), not evaluated"
            yield LeftOut(self.younger, _counted(self.younger, "open span"), why)


def scope(topic: str | None, partition: int | None, broker: BrokerId | None) -> str:
    """The partitions that the flags select, as text; empty for all of them."""
    place = ""
    if topic is not None:
        place = f"topic {topic}" if partition is None else f"{TopicPartition(topic, partition)}"
    led = f"the partitions led by broker {broker}" if broker is not None else ""
    return " of ".join(part for part in (led, place) if part)


def _elsewhere(count: int, where: str) -> Iterator[LeftOut]:
    if count:
        what = _counted(count, "late, long running or stuck transaction")
        yield LeftOut(count, what, f"on none of the requested partitions ({where})")


def _foreign(count: int) -> Iterator[LeftOut]:
    if count:
        yield LeftOut(count, _counted(count, "partition"), FOREIGN)


def _counted(count: int, what: str) -> str:
    return what if count == 1 else f"{what}s"


def _selected(
    cluster: Cluster, topic: str | None, partition: int | None = None, broker: BrokerId | None = None
) -> list[TopicPartition]:
    """The data partitions that the flags select; without flags, all of them.

    Raises:
        BrokerError: the topic, partition or broker does not exist, or is hidden from this user.
    """
    topics = cluster.known.topics
    if topic is not None and topic not in topics:
        raise BrokerError(f"topic {topic}: {why_not_shown(cluster, topic)}")
    selected = [
        TopicPartition(name, number)
        for name, info in sorted(topics.items())
        if name == topic or (topic is None and name != TRANSACTION_STATE_TOPIC)
        for number, at in sorted(info.partitions.items())
        if partition in (None, number) and broker in (None, at.leader)
    ]
    if not selected and partition is not None:
        raise BrokerError(f"topic {topic} has no partition {partition}: it has {len(topics[str(topic)].partitions)}")
    if broker is not None and broker not in cluster.known.brokers:
        raise BrokerError(f"broker {broker}: not among the cluster's brokers {sorted(cluster.known.brokers)}")
    return selected


def _findings(origin: Origin, search: Search, wanted: set[TopicPartition] | None) -> tuple[list[_Found], int]:
    """The findings on the wanted partitions, and the number of transactions that are on none of them."""
    now_ms = wall_clock_ms()
    spans = sorted(search.hanging, key=lambda pair: (pair[0].partition, pair[0].producer_id))
    findings = [
        _Found(
            span_event(origin, span, proof, None, now_ms),
            [Hold(span.start, search.readings[span.partition])],
            search.at_risk.of(*held_by(proof.description, span)).blocked,
            written(span, proof),
        )
        for span, proof in spans
    ]
    elsewhere = 0
    for transaction, confirmed in search.overdue:
        assert confirmed.description is not None
        held = confirmed.description.partitions
        if wanted is None or wanted & held:
            read = [search.readings[partition] for partition in sorted(held) if partition in search.readings]
            event = transaction_event(origin, transaction, confirmed, now_ms)
            blocked = search.at_risk.of(*held_by(confirmed.description)).blocked
            is_open = open_data(transaction.producer_id, read).places(held)
            findings.append(_Found(event, holds_of(transaction.producer_id, read), blocked, is_open=is_open))
        else:
            elsewhere += 1
    return findings, elsewhere


_NAMED = 5


def impossible_stamps(findings: Iterable[_Found]) -> Iterator[str]:
    """The findings whose timestamps cannot be when they were written."""
    wrong = [finding.event for finding in findings if finding.written is not None and finding.written.is_impossible]
    where = [f"{event.topic}-{event.partition}" for event in wrong]
    if where:
        yield (
            f"{some(where, _NAMED)}: the timestamp of the last write cannot be when it was written (the clock of its "
            "client is wrong, or the value is not in milliseconds): the duration is at most as long as shown"
        )


def found_row(
    origin: Origin,
    event: IncidentEvent,
    hurt: Hurt,
    written_at: Written | None = None,
    blocked: Sequence[PartitionReplicas] = (),
    is_open: Container[str] | None = None,
) -> FoundRow:
    """One finding as a row; on `blocked` no marker can be written, and on `is_open` its data is open."""
    telling = tell_found(origin, event, blocked, is_open)
    since_ms: TimestampMs | None = event.open_since_ms
    if written_at is not None and written_at.stamp_ms is not None:
        since_ms = written_at.at_ms(event.time_ms)
    place = f"{event.topic}-{event.partition}" if event.topic is not None else None
    return row_of(
        FoundRow,
        event,
        partitions=(place,) if place is not None else event.evidence.coordinator_partitions,
        start_offset=event.txn_start_offset,
        last_timestamp_ms=event.last_write_ms,
        duration_ms=event.time_ms - since_ms if since_ms is not None else None,
        affected_groups=hurt.affected_names,
        waiting_groups=hurt.waiting_names,
        next=first_command(telling.told),
        **telling._asdict(),
    )


def summary(search: Search, events: int, where: str, *, is_all_judged: bool) -> str:
    """The last line of the text output: an all-clear covers only what was checked."""
    at = f" on {where}" if where else ""
    if events:
        finding = f"{len(search.hanging)} hanging, {events - len(search.hanging)} late, long running or stuck{at}"
    elif search.not_checked:
        finding = f"nothing found{at}, but not everything was checked"
    elif not is_all_judged:
        finding = f"nothing found{at} that is older than --max-transaction-timeout"
    else:
        finding = f"nothing hangs, nothing is late or stuck{at}"
    checked = sum(reading.problem is None for reading in search.readings.values())
    parts = f", {len(search.not_checked)} not checked" if search.not_checked else ""
    spans = f"{len(search.covered)} {_counted(len(search.covered), 'open span')} held by live transactions"
    return f"{finding}: {checked} {_counted(checked, 'partition')} checked{parts}, {spans}"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading partitions", total=total)
        yield lambda count: bar.advance(task, count)
