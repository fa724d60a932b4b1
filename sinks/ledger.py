"""The ledger: which incidents are open, and what is told about them.

Law: nothing is said that a fresh read does not confirm; an `opened` is followed by exactly one `resolved`; nothing
is resolved without evidence; an incident is never opened twice. Its memory is the compacted events topic, so a
restart, a replayed micro-batch or a lost Redis changes nothing: what was published is known, what was not is said
again by the state, and an end that was missed is found by looking again at what is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from txnwatch.sinks import compose
from txnwatch.sinks.compose import Origin
from txnwatch.sinks.confirm import confirm_spans, confirm_transactions
from txnwatch.sinks.outbox import Outbox
from txnwatch.state.confirmation import Answer
from txnwatch.state.emitted import (
    Emitted,
    SpanCandidate,
    SpanEnded,
    StrayWrite,
    TransactionCandidate,
    TransactionMoved,
)
from txnwatch.state.ids import TopicPartition
from txnwatch.state.incident import IncidentEvent, id_once_more, resolved, transaction_incident_id, updated
from txnwatch.state.ports import PartitionReading, TransactionAdmin, TransactionDescription
from txnwatch.state.verdict import RULE_OF, Verdict

CONFIRM_BUDGET_MS = 2_000
CANDIDATES_AT_A_TIME = 200
LOOK_AGAIN_MS = 60_000

SpanKey = tuple[str, TopicPartition, int]


@dataclass(slots=True)
class Ledger:
    """Turns what the state says into events, once each.

    Attributes:
        counts: confirmations by answer, for the metrics.
        on_event: told of every event, after it was handed to the outboxes.
        doubted: partitions whose leader has contradicted a candidate of the last batch.
        report: told, once, why a candidate could be neither confirmed nor refuted.
    """

    origin: Origin
    admin: TransactionAdmin
    outboxes: Sequence[Outbox]
    now_ms: Callable[[], int]
    on_event: Callable[[IncidentEvent], None] = lambda _: None
    report: Callable[[str], None] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)
    _known: dict[str, IncidentEvent] = field(default_factory=dict)
    _spans: dict[SpanKey, str] = field(default_factory=dict)
    doubted: set[TopicPartition] = field(default_factory=set)
    _tried: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    _tries: int = 0
    _look_again_ms: int = 0
    _unknown: dict[str, str] = field(default_factory=dict)

    def remember(self, events: Iterable[IncidentEvent]) -> None:
        """Takes in what was published before: the highest sequence of each incident counts."""
        for event in events:
            known = self._known.get(event.incident_id)
            if event.cluster_id == self.origin.cluster_id and (known is None or event.sequence > known.sequence):
                self._enter(event)
        self._look_again_ms = 0

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return sorted((event for event in self._known.values() if event.is_open), key=lambda event: event.open_since_ms)

    def on_batch(self, emitted: Sequence[Emitted]) -> None:
        """One micro-batch: ends first, then what is new, then a look again at what has been open for a while."""
        now_ms = self.now_ms()
        self.doubted.clear()
        events = [
            *self._ended_spans(emitted, now_ms),
            *self._stray_writes(emitted, now_ms),
            *self._moved_transactions(emitted, now_ms),
        ]
        with self.admin.within(CONFIRM_BUDGET_MS):
            events.extend(self._new_spans(emitted))
            events.extend(self._new_transactions(emitted))
            events.extend(self._look_again(now_ms))
        self._tell(events, now_ms)

    def tell(self, event: IncidentEvent) -> bool:
        """Tells the next event of a known incident; whether the first sink, the ledger's memory, has it already."""
        self._tell([self._enter(event)], self.now_ms())
        return self.outboxes[0].waiting == 0

    @property
    def incidents(self) -> list[IncidentEvent]:
        """The latest event of every incident that is known, resolved ones too."""
        return list(self._known.values())

    def _tell(self, events: Sequence[IncidentEvent], now_ms: int) -> None:
        for outbox in self.outboxes:
            outbox.put(events)
            outbox.deliver(now_ms)
        for event in events:
            self.on_event(event)

    def resend_to(self, outboxes: Iterable[Outbox]) -> None:
        """Queues the latest event of every known incident again, for sinks that may have missed some."""
        for outbox in outboxes:
            outbox.put(list(self._known.values()))

    def _enter(self, event: IncidentEvent) -> IncidentEvent:
        self._known[event.incident_id] = event
        if event.topic is not None and event.partition is not None and event.topic_id is not None:
            key = (event.topic_id, TopicPartition(event.topic, event.partition), event.producer_id)
            if event.is_open:
                self._spans[key] = event.incident_id
            elif self._spans.get(key) == event.incident_id:
                del self._spans[key]
        return event

    def _open_span(self, topic_id: str, partition: TopicPartition, producer_id: int) -> IncidentEvent | None:
        incident_id = self._spans.get((topic_id, partition, producer_id))
        return self._known[incident_id] if incident_id is not None else None

    def _ended_spans(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        for ended in emitted:
            if isinstance(ended, SpanEnded):
                incident = self._open_span(ended.span.topic_id, ended.partition, ended.producer_id)
                if incident is not None:
                    yield self._enter(resolved(incident, now_ms, compose.span_resolution(ended, now_ms)))

    def _stray_writes(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        """Needs no fresh read: the log itself shows two epochs in one span, or two barriers have proven it."""
        for stray in emitted:
            if isinstance(stray, StrayWrite):
                event = compose.stray_event(self.origin, stray, now_ms)
                is_known = self._open_span(stray.topic_id, stray.partition, stray.producer_id) is not None
                if is_known or event.incident_id in self._known:
                    continue
                yield self._enter(event)
                if stray.joined.marker is not None:
                    yield self._enter(resolved(event, now_ms, compose.absorbed(stray.joined.marker, now_ms)))

    def _moved_transactions(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        for moved in emitted:
            if isinstance(moved, TransactionMoved):
                incident = self._known.get(self._transaction_id(moved.producer_id, moved))
                if incident is not None and incident.is_open:
                    yield self._enter(resolved(incident, now_ms, compose.transaction_resolution(moved, now_ms)))

    def _transaction_id(self, producer_id: int, said: TransactionMoved | TransactionCandidate) -> str:
        view = said.said_view if isinstance(said, TransactionMoved) else said.view
        return transaction_incident_id(
            self.origin.cluster_id, view.transactional_id, producer_id, view.start_ms, said.verdict
        )

    def _new_spans(self, emitted: Sequence[Emitted]) -> Iterable[IncidentEvent]:
        new = [
            candidate for candidate in emitted if isinstance(candidate, SpanCandidate) and not self._is_open(candidate)
        ]
        new = self._next_to_try(new)
        confirmations = confirm_spans(self.admin, new)
        confirmed = [pair for pair in confirmations if pair[1].answer is Answer.CONFIRMED]
        topics = {candidate.partition.topic for candidate, _ in confirmed}
        policies = self.admin.cleanup_policies(topics) if topics else {}
        for candidate, found in confirmations:
            what = f"{candidate.partition}@{candidate.span.start_offset} of producer id {candidate.producer_id}"
            if found.answer is Answer.REFUTED:
                self.doubted.add(candidate.partition)
            if not self._is_confirmed(Verdict.HANGING, what, found.answer, found.why):
                continue
            policy = policies.get(candidate.partition.topic)
            event = compose.hanging_event(self.origin, candidate, found, policy, self.now_ms())
            known = self._open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
            if known is not None:
                yield self._enter(updated(known, event.time_ms, **compose.changes(known, event)))
            else:
                yield self._enter(replace(event, incident_id=self._unused(event.incident_id)))

    def _unused(self, incident_id: str) -> str:
        """The id for a span that was just confirmed; another one if it hung before and was resolved.

        An election can take the very marker away that ended it, and then it hangs again, at the same offset.
        """
        found, times = incident_id, 0
        while found in self._known:
            times += 1
            found = id_once_more(incident_id, times)
        return found

    def _next_to_try(self, candidates: list[SpanCandidate]) -> list[SpanCandidate]:
        """As many as one batch confirms, those first that have waited longest: nobody starves behind the unknown."""
        keys = {candidate: (candidate.partition, candidate.producer_id) for candidate in candidates}
        chosen = sorted(candidates, key=lambda candidate: self._tried.get(keys[candidate], 0))[:CANDIDATES_AT_A_TIME]
        self._tries += 1
        self._tried = {key: self._tried.get(key, 0) for key in keys.values()}
        self._tried.update({keys[candidate]: self._tries for candidate in chosen})
        return chosen

    def _is_open(self, candidate: SpanCandidate) -> bool:
        """Whether the span is told as hanging already; a stray write that came to hang is news."""
        known = self._open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
        return known is not None and known.verdict == candidate.verdict

    def _is_confirmed(self, verdict: Verdict, what: str, answer: Answer, why: str) -> bool:
        """Counts an answer; an unknown one is said once, because evidence that is missing must be visible."""
        self.counts[f"{verdict}:{answer}"] += 1
        key = f"{verdict} {what}"
        if answer is not Answer.UNKNOWN:
            self._unknown.pop(key, None)
        elif self._unknown.get(key) != why:
            self._unknown[key] = why
            self.report(f"{key} can be neither confirmed nor refuted now: {why}")
        return answer is Answer.CONFIRMED

    def _new_transactions(self, emitted: Sequence[Emitted]) -> Iterable[IncidentEvent]:
        new = [
            candidate
            for candidate in emitted
            if isinstance(candidate, TransactionCandidate) and self._is_news(candidate)
        ][:CANDIDATES_AT_A_TIME]
        for candidate, found in confirm_transactions(self.admin, new):
            if not self._is_confirmed(candidate.verdict, candidate.view.transactional_id, found.answer, found.why):
                continue
            event = compose.transaction_event(self.origin, candidate, found, self.now_ms())
            known = self._known.get(event.incident_id)
            if known is None:
                yield self._enter(event)
            elif known.is_open:
                changes = {"verdict": event.verdict, "severity": event.severity, "overdue_ms": event.overdue_ms}
                yield self._enter(updated(known, event.time_ms, **changes))

    def _is_news(self, candidate: TransactionCandidate) -> bool:
        """Unknown yet, or worse than what was said: long_running that has become late."""
        known = self._known.get(self._transaction_id(candidate.producer_id, candidate))
        if known is None:
            return True
        return known.is_open and _rank(candidate.verdict) < _rank(Verdict(known.verdict))

    def _look_again(self, now_ms: int) -> Iterable[IncidentEvent]:
        """Open incidents whose end may have been missed (before a restart, in a gap) are read afresh now and then."""
        if now_ms < self._look_again_ms:
            return
        self._look_again_ms = now_ms + LOOK_AGAIN_MS
        yield from self._spans_that_are_over(now_ms)
        yield from self._transactions_that_are_over(now_ms)

    def _spans_that_are_over(self, now_ms: int) -> Iterable[IncidentEvent]:
        keys = list(self._spans)
        readings = self.admin.read_partitions({partition for _, partition, _ in keys}) if keys else {}
        for topic_id, partition, producer_id in keys:
            incident = self._open_span(topic_id, partition, producer_id)
            why = _is_over(readings[partition], incident) if incident is not None else None
            if incident is not None and why is not None:
                yield self._enter(resolved(incident, now_ms, compose.no_longer_open(now_ms, why)))

    def _transactions_that_are_over(self, now_ms: int) -> Iterable[IncidentEvent]:
        incidents = [
            event for event in self.open_incidents if event.topic is None and event.transactional_id is not None
        ]
        names = [event.transactional_id for event in incidents if event.transactional_id is not None]
        described = self.admin.describe_transactions(names) if names else {}
        for incident in incidents:
            now = described[incident.transactional_id or ""]
            if now.problem is None and not _is_same(now, incident):
                detail = f"the coordinator has it in {now.state}" if now.state is not None else "the id is gone"
                yield self._enter(resolved(incident, now_ms, compose.no_longer_open(now_ms, detail)))


def _is_same(now: TransactionDescription, incident: IncidentEvent) -> bool:
    """Whether the coordinator still has the very transaction in the very state."""
    is_one = now.producer_id == incident.producer_id and str(now.state) == incident.transaction_state
    return is_one and (incident.verdict == Verdict.STUCK_PREPARE or now.start_ms == incident.open_since_ms)


def _is_over(reading: PartitionReading, incident: IncidentEvent) -> str | None:
    if reading.problem is not None:
        return None
    if reading.topic_id != incident.topic_id:
        return "the topic was re-created"
    row = reading.open_transaction(incident.producer_id)
    start = incident.txn_start_offset if incident.txn_start_offset is not None else -1
    if row is None:
        # A marker above the high watermark has ended it in the leader's memory, and can still be lost.
        is_stable = start < reading.last_stable_offset
        return "its leader has nothing open there any more" if is_stable else None
    return None if row.txn_start_offset == incident.txn_start_offset else "another transaction is open there now"


def _rank(verdict: Verdict) -> int:
    return list(RULE_OF).index(verdict)
