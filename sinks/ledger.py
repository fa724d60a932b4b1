"""The ledger: which incidents are open, and what is told about them.

Law: nothing is said that a fresh read does not confirm; an `opened` is followed by exactly one `resolved`, with
`updated` in between only where there is news; nothing is resolved without evidence; an incident is never opened twice.
Its memory is the compacted events topic, which it follows: a restart, a replayed micro-batch, another instance or a
lost Redis changes nothing. What was published is known, what was not is said again by the state, and an end that was
missed is found by looking again at what is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from txnwatch.sinks import compose
from txnwatch.sinks.commands import Origin
from txnwatch.sinks.confirm import confirm_contradicted, confirm_spans, confirm_transactions, with_past
from txnwatch.sinks.lookout import LOG_TELLS_MS, Lookout
from txnwatch.sinks.memory import Memory
from txnwatch.sinks.outbox import Outbox
from txnwatch.sinks.turns import Turns
from txnwatch.sinks.unanswered import Unanswered
from txnwatch.state.confirmation import Answer
from txnwatch.state.emitted import (
    CoverInDoubt,
    Emitted,
    SpanCandidate,
    SpanEnd,
    SpanEnded,
    StrayWrite,
    TransactionCandidate,
    TransactionMoved,
)
from txnwatch.state.ids import TopicPartition
from txnwatch.state.incident import IncidentEvent, resolved, transaction_incident_id, updated
from txnwatch.state.news import worth_telling
from txnwatch.state.ports import ConsumerGroups, TransactionAdmin
from txnwatch.state.verdict import RULE_OF, Verdict

CONFIRM_BUDGET_MS = 2_000
LOOK_AGAIN_MS = 60_000
SECOND_LOOK_MS = 10_000  # after an opening, because who is hurt takes two looks
TIDY_MS = 5_000


@dataclass(slots=True)
class Ledger:
    """Turns what the state says into events, once each.

    Attributes:
        outboxes: that of the events topic first.
        heard: what stands on the events topic since it was asked last, ours and others'; None where nobody listens.
        counts: confirmations by answer, for the metrics.
        on_event: told of every event, after it was handed to the outboxes.
        doubted: partitions whose leader has contradicted a candidate of the last batch.
        report: told, once, why a candidate could be neither confirmed nor refuted.
    """

    origin: Origin
    admin: TransactionAdmin
    groups: ConsumerGroups
    outboxes: Sequence[Outbox]
    now_ms: Callable[[], int]
    heard: Callable[[], Iterable[IncidentEvent]] | None = None
    on_event: Callable[[IncidentEvent], None] = lambda _: None
    report: Callable[[str], None] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)
    doubted: set[TopicPartition] = field(default_factory=set)
    _memory: Memory = field(init=False)
    _lookout: Lookout = field(init=False)
    _turns: Turns = field(default_factory=Turns)
    _look_again_ms: int = 0
    _tidy_ms: int = 0
    _unanswered: Unanswered = field(default_factory=Unanswered)

    def __post_init__(self) -> None:
        self._memory = Memory(self.origin.cluster_id)
        self._lookout = Lookout(self.admin, self.groups, self.report)

    def remember(self, events: Iterable[IncidentEvent]) -> None:
        """Takes in what was published before."""
        self._memory.remember(events, self.now_ms())
        self._look_again_ms = 0

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return self._memory.open_incidents

    def on_batch(self, emitted: Sequence[Emitted]) -> None:
        """One micro-batch: ends first, then what is new, then a look again at what has been open for a while."""
        now_ms = self.now_ms()
        self.doubted.clear()
        self._tidy(now_ms)
        events = list(self._listen(now_ms))
        with self.admin.within(CONFIRM_BUDGET_MS):
            events.extend(self._ended_spans(emitted, now_ms))
            events.extend(self._stray_writes(emitted, now_ms))
            events.extend(self._moved_transactions(emitted, now_ms))
            events.extend(self._learned_owners(emitted, now_ms))
            events.extend(self._new_spans(emitted))
            events.extend(self._new_transactions(emitted))
            events.extend(self._look_again(now_ms))
        self._tell(events, now_ms)

    def tell(self, event: IncidentEvent) -> bool:
        """Tells the next event of an open incident; whether the topic, the ledger's memory, has it already.

        Nothing is told if another instance has told the next one, or its end, meanwhile.
        """
        now_ms = self.now_ms()
        self._tell(list(self._listen(now_ms)), now_ms)
        if not self._memory.is_next(event):
            return False
        self._tell([self._memory.enter(event)], now_ms)
        return self.outboxes[0].waiting == 0

    @property
    def incidents(self) -> list[IncidentEvent]:
        """The latest event of every incident that is open or ended less than a day ago."""
        return list(self._memory.known.values())

    def _tell(self, events: Sequence[IncidentEvent], now_ms: int) -> None:
        if self.heard is not None:
            self._memory.telling(events)
        self._deliver(events, now_ms)
        for event in events:
            self.on_event(event)

    def _deliver(self, events: Sequence[IncidentEvent], now_ms: int) -> None:
        """The topic first: what it has not got a restart would forget, and the others would never hear of its end."""
        topic, *others = self.outboxes
        topic.put(events)
        taken = topic.deliver(now_ms)
        for outbox in others:
            outbox.put(taken)
            outbox.deliver(now_ms)

    def resend_to(self, outboxes: Iterable[Outbox]) -> None:
        """Queues the latest event of every incident that is known again, for sinks that may have missed some.

        What the topic has not got yet goes to the others once it has.
        """
        waiting = self.outboxes[0].waiting_incidents
        events = [event for event in self._memory.known.values() if event.incident_id not in waiting]
        for outbox in outboxes:
            outbox.put(events)

    def _tidy(self, now_ms: int) -> None:
        """Lets go of what is long over, here and where it is shown as open still, and fills what was lost."""
        if now_ms < self._tidy_ms:
            return
        self._tidy_ms = now_ms + TIDY_MS
        self._memory.forget(now_ms)
        for outbox in self.outboxes[1:]:
            outbox.forget(self._memory.is_past, now_ms)
            if outbox.has_lost_everything():
                self.report(f"{outbox.name} is empty; filling it")
                self.resend_to([outbox])

    def _listen(self, now_ms: int) -> Iterable[IncidentEvent]:
        for event in self.heard() if self.heard is not None else ():
            is_news, to_tell = self._memory.hear(event, now_ms)
            if is_news:  # behind it, what waits for the topic would be old
                self.outboxes[0].withdraw(event)
                for outbox in self.outboxes[1:]:
                    outbox.put([event])
            if to_tell is not None:
                yield to_tell

    def _ended_spans(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        ends = [
            (ended, incident)
            for ended in emitted
            if isinstance(ended, SpanEnded)
            and (incident := self._memory.open_span(ended.span.topic_id, ended.partition, ended.producer_id))
        ]
        names = {incident.transactional_id for ended, incident in ends if ended.how is SpanEnd.MARKER}
        named = sorted(name for name in names if name is not None)
        owners = self.admin.describe_transactions(named) if named else {}
        for ended, incident in ends:
            resolution = compose.span_resolution(ended, incident, owners.get(incident.transactional_id or ""), now_ms)
            yield self._memory.enter(resolved(incident, now_ms, resolution))

    def _learned_owners(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        """A candidate that is said again may know by now whose it is."""
        for candidate in emitted:
            if isinstance(candidate, SpanCandidate) and candidate.view is not None and self._is_open(candidate):
                known = self._memory.open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
                if known is not None and known.transactional_id is None:
                    name = candidate.view.transactional_id
                    yield self._memory.enter(updated(known, now_ms, transactional_id=name))

    def _stray_writes(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        """Needs no fresh read: the log itself shows two epochs in one span, or two barriers have proven it."""
        for stray in emitted:
            if isinstance(stray, StrayWrite):
                event = compose.stray_event(self.origin, stray, now_ms)
                is_known = self._memory.open_span(stray.topic_id, stray.partition, stray.producer_id) is not None
                if is_known or self._memory.is_used(event.incident_id):
                    continue
                yield self._memory.enter(event)
                if stray.joined.marker is not None:
                    yield self._memory.enter(resolved(event, now_ms, compose.absorbed(stray.joined.marker, now_ms)))

    def _moved_transactions(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        for moved in emitted:
            if isinstance(moved, TransactionMoved):
                incident = self._memory.known.get(self._transaction_id(moved.producer_id, moved))
                if incident is not None and incident.is_open:
                    yield self._memory.enter(resolved(incident, now_ms, compose.transaction_resolution(moved, now_ms)))

    def _transaction_id(self, producer_id: int, said: TransactionMoved | TransactionCandidate) -> str:
        view = said.said_view if isinstance(said, TransactionMoved) else said.view
        return transaction_incident_id(
            self.origin.cluster_id, view.transactional_id, producer_id, view.start_ms, said.verdict
        )

    def _new_spans(self, emitted: Sequence[Emitted]) -> Iterable[IncidentEvent]:
        now_ms = self.now_ms()
        new = (said for said in emitted if isinstance(said, SpanCandidate) and not self._is_open(said))
        doubts = (said.candidate for said in emitted if isinstance(said, CoverInDoubt))
        held = (candidate for candidate in doubts if not self._is_open(candidate))
        confirmations = confirm_spans(self.admin, self._turns.spans.next(new, now_ms))
        confirmations += confirm_contradicted(self.admin, self._turns.held.next(held, now_ms))
        confirmed = [pair for pair in confirmations if pair[1].answer is Answer.CONFIRMED]
        topics = {candidate.partition.topic for candidate, _ in confirmed}
        policies = self.admin.cleanup_policies(topics) if topics else {}
        readings = {candidate.partition: found.reading for candidate, found in confirmed if found.reading is not None}
        around = self._lookout.around(readings, self.now_ms())
        for candidate, found in confirmations:
            what = f"{candidate.partition}@{candidate.span.start_offset} of producer id {candidate.producer_id}"
            if found.answer is Answer.REFUTED:
                self.doubted.add(candidate.partition)
            if not self._is_confirmed(Verdict.HANGING, what, found.answer, found.why):
                continue
            policy = policies.get(candidate.partition.topic)
            whole = with_past(self.admin, candidate, found)
            event = compose.hanging_event(self.origin, candidate, whole, policy, self.now_ms())
            event = replace(event, **around.get(candidate.partition, {}))
            self._look_again_ms = min(self._look_again_ms, event.time_ms + SECOND_LOOK_MS)
            known = self._memory.open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
            if known is not None:
                yield self._memory.enter(updated(known, event.time_ms, **compose.changes(known, event)))
            else:
                yield self._memory.enter(replace(event, incident_id=self._memory.unused(event.incident_id)))

    def _is_open(self, candidate: SpanCandidate) -> bool:
        """Whether the span is told as hanging already; a stray write that came to hang is news."""
        known = self._memory.open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
        return known is not None and known.verdict == candidate.verdict

    def _is_confirmed(self, verdict: Verdict, what: str, answer: Answer, why: str) -> bool:
        """Counts an answer; an unknown one is said once, because evidence that is missing must be visible."""
        self.counts[f"{verdict}:{answer}"] += 1
        key = f"{verdict} {what}"
        if answer is not Answer.UNKNOWN:
            self._unanswered.settle(key)
        elif self._unanswered.is_news(key, why, self.now_ms()):
            self.report(f"{key} can be neither confirmed nor refuted now: {why}")
        return answer is Answer.CONFIRMED

    def _new_transactions(self, emitted: Sequence[Emitted]) -> Iterable[IncidentEvent]:
        new = (said for said in emitted if isinstance(said, TransactionCandidate) and self._is_news(said))
        for candidate, found in confirm_transactions(self.admin, self._turns.transactions.next(new, self.now_ms())):
            if not self._is_confirmed(candidate.verdict, candidate.view.transactional_id, found.answer, found.why):
                continue
            event = compose.transaction_event(self.origin, candidate, found, self.now_ms())
            known = self._memory.known.get(event.incident_id)
            if known is None:
                yield self._memory.enter(event)
            elif known.is_open:
                changes = {"verdict": event.verdict, "severity": event.severity, "overdue_ms": event.overdue_ms}
                yield self._memory.enter(updated(known, event.time_ms, **changes))

    def _is_news(self, candidate: TransactionCandidate) -> bool:
        """Unknown yet, or worse than what was said: long_running that has become late."""
        incident_id = self._transaction_id(candidate.producer_id, candidate)
        known = self._memory.known.get(incident_id)
        if known is None:
            return not self._memory.is_past(incident_id)
        return known.is_open and _rank(candidate.verdict) < _rank(Verdict(known.verdict))

    def _look_again(self, now_ms: int) -> Iterable[IncidentEvent]:
        """Open incidents whose end may have been missed (before a restart, in a gap) are read afresh now and then."""
        if now_ms < self._look_again_ms:
            return
        is_young = any(now_ms - known.detected_at_ms < SECOND_LOOK_MS for known in self.open_incidents)
        self._look_again_ms = now_ms + (SECOND_LOOK_MS if is_young else LOOK_AGAIN_MS)
        for incident, resolution, changes in self._lookout.look(self._memory.left_to_us(now_ms), now_ms):
            if resolution is not None:
                yield self._memory.enter(resolved(incident, now_ms, resolution))
            elif worth_telling(incident, now := updated(incident, now_ms, **changes)):
                yield self._memory.enter(now)
        if self._lookout.is_waiting:
            self._look_again_ms = now_ms + LOG_TELLS_MS


def _rank(verdict: Verdict) -> int:
    return list(RULE_OF).index(verdict)
