"""The ledger: which incidents are open, and which events are published about them.

Law: an incident is published only after a fresh read confirms it (a stray write is proven by the log itself). An
`opened` event is followed by exactly one `resolved` event, with `updated` events in between only for relevant changes.
Nothing is resolved without evidence. An incident is never opened twice.

The ledger's durable storage is the compacted events topic, which it follows. So a restart, a replayed micro-batch,
another instance or a lost Redis changes nothing: published events are known, the state emits the others again, and a
missed end is found when open incidents are checked again. An event on the topic is only a claim: events of other
writers are compared with what this process finds (sinks/incidents/claims.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from txnwatch.sinks.delivery.outbox import Outbox
from txnwatch.sinks.incidents import event_builder as compose
from txnwatch.sinks.incidents.claims import Claims, differs, found_too
from txnwatch.sinks.incidents.commands import Origin
from txnwatch.sinks.incidents.confirm import confirm_contradicted, confirm_spans, confirm_transactions, with_pasts
from txnwatch.sinks.incidents.confirmation_queue import ConfirmationQueues
from txnwatch.sinks.incidents.fan_out import Delivery
from txnwatch.sinks.incidents.follow_up import LOG_TELLS_MS, FollowUp
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.outcome_retries import OutcomeRetries
from txnwatch.sinks.incidents.own_findings import EvidenceStore, Findings, key_of
from txnwatch.sinks.incidents.retention import Retention
from txnwatch.sinks.incidents.unanswered import ReportedReasons
from txnwatch.state.abort.case import Evidence
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.evidence.known_outcome import Outcome, known_outcome
from txnwatch.state.evidence.outcome import UNKNOWN
from txnwatch.state.evidence.update_rules import worth_telling
from txnwatch.state.model.findings import (
    CoverInDoubt,
    Emitted,
    OwnerInDoubt,
    SpanCandidate,
    SpanEnd,
    SpanEnded,
    StrayWrite,
    TransactionCandidate,
    TransactionMoved,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent, Overwritten, resolved, updated
from txnwatch.state.model.ports import ConsumerGroups, TransactionAdmin
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.verdicts import Verdict, rank

CONFIRM_BUDGET_MS = 2_000
OUTCOME_BUDGET_MS = 500
LOOK_AGAIN_MS = 60_000
SECOND_LOOK_MS = 10_000  # after an opening, because affected groups show only in a second read


@dataclass(slots=True)
class Ledger:
    """Turns findings of the state into events, each once.

    Attributes:
        outboxes: the outbox of the events topic first.
        heard: returns the records of the events topic since the last call, ours and others'; None if the topic is not
            followed.
        counts: confirmations by answer, for the metrics.
        on_event: called with every event, after it was handed to the outboxes.
        doubted: partitions whose leader has refuted a candidate of the last batch.
        report: called once with the reason why a candidate could be neither confirmed nor refuted.
        retention: how long an incident that ended is kept.
        evidence: durable storage for evidence; None for none.
        findings: what this process has found itself; the abort uses nothing else.
    """

    origin: Origin
    admin: TransactionAdmin
    groups: ConsumerGroups
    outboxes: Sequence[Outbox]
    now_ms: Callable[[], int]
    heard: Callable[[], Iterable[IncidentEvent | Overwritten]] | None = None
    on_event: Callable[[IncidentEvent], None] = lambda _: None
    report: Callable[[str], None] = lambda _: None
    retention: Retention = field(default_factory=Retention)
    counts: Counter[str] = field(default_factory=Counter)
    doubted: set[TopicPartition] = field(default_factory=set)
    evidence: EvidenceStore | None = None
    findings: Findings = field(init=False)
    _claims: Claims = field(init=False)
    _memory: IncidentStore = field(init=False)
    _delivery: Delivery = field(init=False)
    _lookout: FollowUp = field(init=False)
    _outcomes: OutcomeRetries = field(init=False)
    _turns: ConfirmationQueues = field(default_factory=ConfirmationQueues)
    _look_again_ms: int = 0
    _unanswered: ReportedReasons = field(default_factory=ReportedReasons)

    def __post_init__(self) -> None:
        self.findings = Findings(self.evidence)
        self._claims = Claims(self.origin, self.admin, self.findings, self.now_ms)
        self._memory = self._claims.memory
        self._delivery = Delivery(
            self.outboxes, self._memory, self.retention, self.on_event, self.report, listens=self.heard is not None
        )
        self._lookout = FollowUp(self.admin, self.groups, self.report)
        self._outcomes = OutcomeRetries(self.origin, self.admin, self._memory, self.findings)

    @property
    def can_wait(self) -> bool:
        """Whether the next barrier may wait: no incident is open, and no candidate and no event is queued."""
        waits = self._turns.waiting or self._claims.has_doubts or any(outbox.waiting for outbox in self.outboxes)
        return not (self.open_incidents or waits)

    def remember(self, found: Iterable[IncidentEvent | Overwritten]) -> None:
        """Loads events that were published before."""
        self._memory.remember(found, self.now_ms())
        self._look_again_ms = 0

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return self._memory.open_incidents

    def on_batch(self, emitted: Sequence[Emitted]) -> None:
        """Processes one micro-batch: ends first, then new candidates, then a check of open incidents."""
        now_ms = self.now_ms()
        self.doubted.clear()
        self._delivery.tidy(now_ms)
        events = list(self._listen(now_ms))
        self._turns.over(one for one in emitted if isinstance(one, SpanEnded))
        with self.admin.within(CONFIRM_BUDGET_MS):
            emitted = [*emitted, *self._claims.gone_on()]
            events.extend(self._ended_spans(emitted, now_ms))
            events.extend(self._stray_writes(emitted, now_ms))
            events.extend(self._moved_transactions(emitted, now_ms))
            events.extend(self._learned_owners(emitted, now_ms))
            events.extend(self._new_spans(emitted))
            events.extend(self._new_transactions(emitted))
        with self.admin.within(CONFIRM_BUDGET_MS):
            events.extend(self._look_again(now_ms))
        self._delivery.tell(events, now_ms)
        with self.admin.within(OUTCOME_BUDGET_MS):
            found = list(self._outcomes.found(emitted, now_ms))
        self._delivery.tell(found, now_ms)
        self.findings.keep(now_ms)

    def tell(self, event: IncidentEvent) -> bool:
        """Publishes the next event of an open incident. Returns whether the events topic already has it.

        Nothing is published if another instance has published the next event, or the end, in the meantime.
        """
        now_ms = self.now_ms()
        self._delivery.tell(list(self._listen(now_ms)), now_ms)
        if not self._memory.is_next(event):
            return False
        self._claims.acted(event)
        self._delivery.tell([self._memory.enter(self._claims.as_found(event))], now_ms)
        return self.outboxes[0].waiting == 0

    def proven(self) -> list[tuple[IncidentEvent, Evidence]]:
        """Open incidents about hanging transactions of which this process has its own evidence, with it."""
        return [
            (incident, evidence)
            for incident in self.open_incidents
            if incident.verdict == Verdict.HANGING and not incident.is_by_hand and self._claims.is_found(incident)
            if (key := incident.span) is not None and (evidence := self.findings.get(key)) is not None
        ]

    def wrote(self, incident: IncidentEvent, marker: Marker) -> None:
        """Records that a marker of this process is proven to have ended an incident's span."""
        if incident.span is not None:
            self.findings.wrote(incident.span, marker)

    @property
    def incidents(self) -> list[IncidentEvent]:
        """The latest event of every incident that is open or ended less than a day ago."""
        return list(self._memory.known.values())

    def resend_to(self, outboxes: Iterable[Outbox]) -> None:
        """Queues the latest event of every known incident again, for sinks that may have missed some."""
        self._delivery.resend_to(outboxes)

    def _listen(self, now_ms: int) -> Iterable[IncidentEvent]:
        for event in self.heard() if self.heard is not None else ():
            if isinstance(event, Overwritten):
                self._memory.overwrite(event.incident_id)
                continue
            is_new, to_tell = self._memory.hear(event, now_ms)
            if is_new:  # queued events of the incident are older than this one
                self.outboxes[0].withdraw(event)
                for outbox in self.outboxes[1:]:
                    outbox.put([self._memory.known[event.incident_id]])
                self._look_again_ms = now_ms
            if to_tell is not None:
                yield to_tell
            elif is_new and (correction := self._claims.heard(event, now_ms)) is not None:
                yield correction
        spent = self._memory.owed()
        self._claims.doubt_spent(spent)
        yield from map(self._claims.as_found, spent)
        if again := self._delivery.tell_again():
            self.counts["incidents published again (their last record was not an event)"] += again

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
            ours = self.findings.marker((ended.span.topic_id, ended.partition, ended.producer_id))
            owner = owners.get(incident.transactional_id or "")
            yield self._end(incident, compose.span_resolution(ended, incident, owner, now_ms, ours), now_ms)
        for said in emitted:
            if isinstance(said, SpanEnded):
                self.findings.over((said.span.topic_id, said.partition, said.producer_id))

    def _end(self, incident: IncidentEvent, resolution: dict[str, Any], now_ms: int) -> IncidentEvent:
        """The `resolved` event of an incident, with the outcome that this process has found."""
        told = self._claims.as_found(incident)
        self._claims.ended(incident)
        return self._memory.enter(resolved(told, now_ms, resolution))

    def _learned_owners(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        """Updates with the owner, if a candidate that is repeated names it now."""
        for candidate in emitted:
            if isinstance(candidate, SpanCandidate) and candidate.view is not None and self._is_open(candidate):
                known = self._memory.open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
                if known is not None and known.transactional_id is None:
                    name = candidate.view.transactional_id
                    yield self._memory.enter(self._claims.as_found(updated(known, now_ms, transactional_id=name)))

    def _stray_writes(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        """Events for stray writes. No fresh read: the log shows two epochs in one span, or two barriers prove it."""
        for stray in emitted:
            if isinstance(stray, StrayWrite):
                event = compose.stray_event(self.origin, stray, now_ms)
                is_known = self._memory.open_span(stray.topic_id, stray.partition, stray.producer_id) is not None
                if is_known or self._claims.is_told(event):
                    continue
                event = replace(event, incident_id=self._memory.unused(event.incident_id))
                yield self._memory.enter(event)
                if stray.joined.marker is not None:
                    yield self._memory.enter(resolved(event, now_ms, compose.absorbed(stray.joined.marker, now_ms)))

    def _moved_transactions(self, emitted: Sequence[Emitted], now_ms: int) -> Iterable[IncidentEvent]:
        for moved in emitted:
            if isinstance(moved, TransactionMoved):
                incident = self._memory.open_one(self._claims.transaction_id(moved.producer_id, moved.said_view, moved))
                if incident is not None:
                    yield self._end(incident, compose.transaction_resolution(moved, now_ms), now_ms)

    def _new_spans(self, emitted: Sequence[Emitted]) -> Iterable[IncidentEvent]:
        now_ms = self.now_ms()
        said = (one for one in emitted if isinstance(one, SpanCandidate) and not self._is_settled(one))
        doubts = (one.candidate for one in emitted if isinstance(one, CoverInDoubt | OwnerInDoubt))
        new, held = self._turns.spans.next(said, now_ms), self._turns.held.next(doubts, now_ms)
        confirmations = confirm_spans(self.admin, [one for one in new if not self._is_settled(one)])
        confirmations += confirm_contradicted(self.admin, [one for one in held if not self._is_settled(one)])
        confirmed = [pair for pair in confirmations if pair[1].answer is Answer.CONFIRMED]
        topics = {candidate.partition.topic for candidate, _ in confirmed}
        policies = self.admin.cleanup_policies(topics) if topics else {}
        readings = {candidate.partition: found.reading for candidate, found in confirmed if found.reading is not None}
        around = self._lookout.around(readings, self.now_ms())
        with self.admin.within(OUTCOME_BUDGET_MS):  # if time runs out, the outcome is found later
            whole = dict(with_pasts(self.admin, confirmed))
        for candidate, found in confirmations:
            what = f"{candidate.partition}@{candidate.span.start_offset} of producer id {candidate.producer_id}"
            if found.answer is Answer.REFUTED:
                self.doubted.add(candidate.partition)
            if not self._is_confirmed(Verdict.HANGING, what, found.answer, found.why):
                continue
            policy = policies.get(candidate.partition.topic)
            evidence = self.findings.confirmed(candidate, whole[candidate], self.now_ms())
            told = (whole[candidate], policy, self.now_ms(), evidence.outcome)
            event = replace(compose.hanging_event(self.origin, candidate, *told), **around.get(candidate.partition, {}))
            self._look_again_ms = min(self._look_again_ms, event.time_ms + SECOND_LOOK_MS)
            yield from self._hanging(candidate, event)
            known = self._memory.open_span(*key_of(candidate))
            if known is not None:
                self.findings.told_as(key_of(candidate), known.incident_id)
            outcome = known_outcome(candidate, whole[candidate])
            if known is not None:
                self._outcomes.told(
                    known, candidate, outcome if evidence.outcome == UNKNOWN else Outcome(evidence.outcome)
                )

    def _hanging(self, candidate: SpanCandidate, event: IncidentEvent) -> Iterable[IncidentEvent]:
        """Events for a confirmed hanging span: it opens an incident, ends an older one, or changes a published one."""
        known, now_ms = self._memory.open_span(*key_of(candidate)), event.time_ms
        if known is not None and known.txn_start_offset != event.txn_start_offset:
            yield self._end(known, compose.no_longer_open(now_ms, "another transaction is open there now"), now_ms)
            known = None
        if known is None:
            yield self._memory.enter(replace(event, incident_id=self._memory.unused(event.incident_id)))
        elif known.verdict != event.verdict:
            yield self._memory.enter(updated(known, now_ms, **compose.changes(known, event)))
        else:
            yield from self._found_too(known, event)

    def _found_too(self, known: IncidentEvent, event: IncidentEvent) -> Iterable[IncidentEvent]:
        """An incident published before a restart or by another writer: its content becomes what was found here."""
        ours = found_too(known, event)
        is_known_now = known.expected_outcome == UNKNOWN != ours.expected_outcome
        is_named_now = known.transactional_id is None is not ours.transactional_id
        if differs(known, ours) or is_known_now or is_named_now:
            ours = updated(ours, event.time_ms)
            yield ours
        self._memory.enter(ours)

    def _is_open(self, candidate: SpanCandidate) -> bool:
        """Whether an incident with the same verdict is open; a stray write that hangs later has another verdict."""
        known = self._memory.open_span(*key_of(candidate))
        return known is not None and known.verdict == candidate.verdict

    def _is_settled(self, candidate: SpanCandidate) -> bool:
        """Whether the incident is published, and this process has found it itself."""
        self.findings.said(candidate)
        known = self._memory.open_span(*key_of(candidate))
        return known is not None and known.verdict == candidate.verdict and self._claims.is_found(known)

    def _is_confirmed(self, verdict: Verdict, what: str, answer: Answer, why: str) -> bool:
        """Counts an answer. An unknown answer is reported once, because missing evidence must be visible."""
        self.counts[f"{verdict}:{answer}"] += 1
        key = f"{verdict} {what}"
        if answer is not Answer.UNKNOWN:
            self._unanswered.settle(key)
        elif self._unanswered.is_new(key, why, self.now_ms()):
            self.report(f"{key} can be neither confirmed nor refuted now: {why}")
        return answer is Answer.CONFIRMED

    def _new_transactions(self, emitted: Sequence[Emitted]) -> Iterable[IncidentEvent]:
        said = (one for one in emitted if isinstance(one, TransactionCandidate) and self._is_news(one))
        new = [one for one in self._turns.transactions.next(said, self.now_ms()) if self._is_news(one)]
        for candidate, found in confirm_transactions(self.admin, new):
            if not self._is_confirmed(candidate.verdict, candidate.view.transactional_id, found.answer, found.why):
                continue
            event = compose.transaction_event(self.origin, candidate, found, self.now_ms())
            known = self._memory.open_one(event.incident_id)
            if known is None:
                told = self._memory.enter(replace(event, incident_id=self._memory.unused(event.incident_id)))
                yield told
            elif rank(candidate.verdict) < rank(Verdict(known.verdict)):
                changes = {"verdict": event.verdict, "severity": event.severity, "overdue_ms": event.overdue_ms}
                told = self._memory.enter(updated(known, event.time_ms, **changes))
                yield told
            else:  # published already
                ours = found_too(known, event)
                if differs(known, ours):
                    ours = updated(ours, event.time_ms)
                    yield ours
                told = self._memory.enter(ours)
            self.findings.transactions[told.incident_id] = candidate

    def _is_news(self, candidate: TransactionCandidate) -> bool:
        """Whether the candidate is new, or worse than the open incident: long_running that has become late."""
        known = self._memory.open_one(self._claims.transaction_id(candidate.producer_id, candidate.view, candidate))
        if known is None or known.incident_id not in self.findings.transactions:
            return True
        return rank(candidate.verdict) < rank(Verdict(known.verdict))

    def _look_again(self, now_ms: int) -> Iterable[IncidentEvent]:
        """Reads open incidents again from time to time: an end may be missed before a restart, or in a gap."""
        if now_ms < self._look_again_ms:
            return
        is_young = any(now_ms - known.detected_at_ms < SECOND_LOOK_MS for known in self.open_incidents)
        self._look_again_ms = now_ms + (SECOND_LOOK_MS if is_young else LOOK_AGAIN_MS)
        looked_at = self._memory.left_to_us(now_ms)
        for incident, resolution, changes in self._lookout.look(looked_at, now_ms):
            if resolution is not None:
                yield self._over(incident, resolution, now_ms)
            elif worth_telling(incident, now := updated(incident, now_ms, **changes)):
                yield self._memory.enter(self._claims.as_found(now))
        for incident, resolution in self._claims.refuted(self._memory.left_to_us(now_ms), now_ms):
            if self._memory.known[incident.incident_id].is_open:
                yield self._over(incident, resolution, now_ms)
        if self._lookout.is_waiting:
            self._look_again_ms = now_ms + LOG_TELLS_MS

    def _over(self, incident: IncidentEvent, resolution: dict[str, Any], now_ms: int) -> IncidentEvent:
        """Ends an incident after a check, and drops the findings about it."""
        key = incident.span
        its_own = self._memory.open_span(*key) if key is not None else None
        is_found = self._claims.is_found(incident)
        ended = self._end(self._memory.known[incident.incident_id], resolution, now_ms)
        if key is not None and is_found and its_own is not None and its_own.incident_id == incident.incident_id:
            self.findings.over(key)
        return ended
