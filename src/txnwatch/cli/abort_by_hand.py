"""What `txnwatch abort` does behind its words: finds the transaction, its outcome, and ends it with events.

An abort by hand has an incident of its own, about nothing but the abort: the sequence of an incident that a running
watch has opened belongs to that watch.
"""

from __future__ import annotations

import contextlib
import getpass
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from txnwatch.sinks.commands import Origin
from txnwatch.sinks.compose import hanging_event, no_longer_open
from txnwatch.sinks.confirm import confirm_spans
from txnwatch.sinks.event_log import read_events
from txnwatch.sinks.kafka import KafkaEventSink
from txnwatch.sinks.marking import ABORT, COMMIT, REFUSED, VERIFIED, CameTo, action, write
from txnwatch.state.abort_case import AbortPolicy, Case, Usage
from txnwatch.state.abort_plan import AbortSpec, Refused, candidate_again, decide_abort
from txnwatch.state.abort_rules import Refusal
from txnwatch.state.confirmation import Answer, SpanConfirmation
from txnwatch.state.emitted import SpanCandidate
from txnwatch.state.errors import BrokerError, SinkError, TxnwatchError
from txnwatch.state.ids import TopicPartition
from txnwatch.state.incident import BY_HAND, IncidentEvent, id_once_more, latest, resolved, updated
from txnwatch.state.ports import ActiveProducer
from txnwatch.state.transaction import Span
from txnwatch.state.verdict import Reason, Verdict
from txnwatch.streaming.admin import ClusterAdmin
from txnwatch.streaming.clock import wall_clock_ms
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.options import SourceOptions
from txnwatch.streaming.past import Past, read_past

_TIMEOUT_S = 10.0
_BETWEEN_LOOKS_S = 1.0


@dataclass(frozen=True, slots=True)
class Manual:
    """What was asked for; exactly one of `start_offset` and `producer_id` is given."""

    bootstrap: str
    topic: str
    partition: int
    start_offset: int | None
    producer_id: int | None
    is_commit: bool
    may_lose: bool
    events_topic: str

    @property
    def policy(self) -> AbortPolicy:
        """Somebody answers for it: no clocks, lists or budgets, and an unknown outcome is a loss that was named."""
        outcomes = {"abort", "none", "unknown", *(["commit"] if self.may_lose else [])}
        return AbortPolicy(
            after_ms=0,
            budget_per_hour=None,
            breaker_incidents=None,
            outcomes=frozenset(outcomes),
            commit=self.is_commit,
        )


@dataclass(frozen=True, slots=True)
class ManualCase:
    """The cluster, and what was asked for."""

    cluster: Cluster
    admin: ClusterAdmin
    config: dict[str, str]
    asked: Manual

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.asked.topic, self.asked.partition)


@contextlib.contextmanager
def open_case(options: SourceOptions, config: dict[str, str], asked: Manual) -> Iterator[ManualCase]:
    """Connects."""
    with contextlib.closing(Cluster(options.bootstrap, options.security, timeout_s=_TIMEOUT_S)) as cluster:
        yield ManualCase(cluster, ClusterAdmin(cluster), config, asked)


def look(case: ManualCase) -> tuple[IncidentEvent, SpanConfirmation]:
    """The transaction as an incident, by two looks; the second is the fresh read for the decision.

    Raises:
        TxnwatchError: there is no such open transaction, it does not hang, or that could not be read.
    """
    case.cluster.refresh()
    row, topic_id = _row(case)
    past = read_past(case.cluster, case.place, row.producer_id, row.txn_start_offset, wall_clock_ms())
    candidate = _candidate(case, row, topic_id, past)
    first = _confirmed(case, candidate)
    time.sleep(_BETWEEN_LOOKS_S)
    second = _confirmed(case, candidate)
    origin = Origin(case.cluster.known.cluster_id, case.asked.bootstrap)
    event = hanging_event(origin, candidate, first, None, wall_clock_ms())
    watched = _watched(case, event)
    if event.expected_outcome == "unknown" and watched is not None:
        event = replace(event, expected_outcome=watched.expected_outcome)
    name = watched.transactional_id if watched is not None else None
    return replace(event, transactional_id=event.transactional_id or name), second


def _row(case: ManualCase) -> tuple[ActiveProducer, str]:
    reading = case.admin.read_partitions([case.place])[case.place]
    if reading.problem is not None:
        raise BrokerError(f"{case.place}: expected its leader to describe its producers, found: {reading.problem}")
    asked = case.asked
    for row in reading.producers:
        if row.txn_start_offset >= 0 and (
            row.txn_start_offset == asked.start_offset or row.producer_id == asked.producer_id
        ):
            return row, reading.topic_id
    found = [f"{row.txn_start_offset} (producer id {row.producer_id})" for row in reading.producers if row[5] >= 0]
    raise TxnwatchError(
        f"{case.place}: no open transaction is there as asked for; open from: {', '.join(sorted(found)) or 'nothing'}"
    )


def _candidate(case: ManualCase, row: ActiveProducer, topic_id: str, past: Past) -> SpanCandidate:
    now_ms = wall_clock_ms()
    # Without its first batch nobody knows under which epoch it began: two epochs are no transaction's own.
    unread = Span(topic_id, row.txn_start_offset, -1, row.producer_epoch, -1, row.last_timestamp_ms, now_ms, 0)
    is_read = past.span is not None and past.span.start_offset == row.txn_start_offset
    return SpanCandidate(
        verdict=Verdict.HANGING,
        reason=Reason.NO_TRANSACTIONAL_ID,
        producer_id=row.producer_id,
        partition=case.place,
        span=past.span if is_read and past.span is not None else unread,
        view=past.view,
        last_marker=None,
        first_barrier=0,
        second_barrier=0,
        data_listed_ms=now_ms,
        coordinator_listed_ms=now_ms,
    )


def _confirmed(case: ManualCase, candidate: SpanCandidate) -> SpanConfirmation:
    ((_, found),) = confirm_spans(case.admin, [candidate])
    if found.answer is Answer.REFUTED:
        raise TxnwatchError(f"{case.place}: it does not hang: {found.why}")
    if found.answer is Answer.UNKNOWN:
        raise BrokerError(f"{case.place}: whether it hangs could not be read: {found.why}")
    return found


def _watched(case: ManualCase, event: IncidentEvent) -> IncidentEvent | None:
    """The open incident of a watch about the very data, if there is one: it may know more of the coordinator's log."""
    try:
        read = read_events(case.config, case.asked.events_topic)
        told = latest(found for found in read if not isinstance(found, SinkError))
    except BrokerError:
        return None
    watched = (found for found in told.values() if found.is_open and not found.is_by_hand)
    return next((found for found in watched if _data(found) == _data(event)), None)


def _data(event: IncidentEvent) -> tuple[object, ...]:
    return (
        event.cluster_id,
        event.topic_id,
        event.partition,
        event.producer_id,
        event.producer_epoch,
        event.txn_start_offset,
        event.evidence.get("last_sequence"),
    )


def decide(case: ManualCase, incident: IncidentEvent, found: SpanConfirmation) -> AbortSpec | Refused:
    """The decision of the automatic abort, under the policy of a hand."""
    return decide_abort(Case(incident, found, case.asked.policy, Usage(), wall_clock_ms()))


def act(case: ManualCase, incident: IncidentEvent) -> CameTo | Refused:
    """Reads once more (somebody may have thought for a while), announces, writes, reads again and tells."""
    found = _confirmed(case, candidate_again(incident))
    spec = decide(case, incident, found)
    if isinstance(spec, Refused):
        return spec
    by, stable = f"{getpass.getuser()}@{socket.gethostname()}", incident.last_stable_offset
    decision = COMMIT if case.asked.is_commit else ABORT
    begun = action(decision, by, wall_clock_ms(), detail=BY_HAND, spec=spec, stable_before=stable)
    own_id = id_once_more(incident.incident_id, wall_clock_ms())
    ahead = replace(incident, incident_id=own_id, action=begun, time_ms=wall_clock_ms())
    with _telling(case) as sink:
        sink.tell(ahead)
        came_to = write(case.admin, ahead, spec)
        told = {**begun, "result": came_to.result, "last_stable_offset_after": came_to.stable_after}
        if came_to.is_denied:
            told = {**told, "decision": REFUSED, "refusal": Refusal.NOT_AUTHORIZED, "result": None}
        after = updated(ahead, wall_clock_ms(), action=told)
        try:
            sink.tell(after)
            if came_to.result == VERIFIED:
                end = {**no_longer_open(wall_clock_ms(), BY_HAND), "by": "administrator"}
                end["how"] = "committed" if case.asked.is_commit else "aborted"
                sink.tell(resolved(after, wall_clock_ms(), end))
        except SinkError as exc:  # what was done must be known to who did it
            untold = f"{came_to.detail or 'closed'}; but the events topic could not be told: {exc}"
            came_to = replace(came_to, detail=untold)
    return Refused(Refusal.NOT_AUTHORIZED, came_to.detail or "") if came_to.is_denied else came_to


class _Telling:
    def __init__(self, sink: KafkaEventSink | None) -> None:
        self._sink = sink

    def tell(self, event: IncidentEvent) -> None:
        if self._sink is not None:
            self._sink.deliver([event])


@contextlib.contextmanager
def _telling(case: ManualCase) -> Iterator[_Telling]:
    """The events topic, if it is there: a cluster that is not watched has none, and is not given one."""
    if case.asked.events_topic not in case.cluster.refresh().topics:
        yield _Telling(None)
        return
    with contextlib.closing(KafkaEventSink(case.config, case.asked.events_topic)) as sink:
        yield _Telling(sink)
