"""Events about spans: hanging spans are confirmed by a fresh read, stray writes are proven by the log itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from txnwatch.sinks.incidents import event_builder
from txnwatch.sinks.incidents.checking import FollowUp, OpenChecks, Surroundings, where
from txnwatch.sinks.incidents.claims import Claims
from txnwatch.sinks.incidents.confirm import (
    Answers,
    ConfirmationQueues,
    confirm_asked,
    confirm_contradicted,
    confirm_overdue,
    confirm_spans,
    confirm_transactions,
    start_of,
    with_histories,
)
from txnwatch.sinks.incidents.event_builder import HangingData, Origin, end_hanging
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.own_findings import Findings, key_of
from txnwatch.state.abort.case import ProvenHang, agreed, is_same_data, unconfirmed
from txnwatch.state.abort.fencing import ProducerIdentity
from txnwatch.state.evidence import ending
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.ending import SECOND_LOOK_MS
from txnwatch.state.evidence.outcome import (
    Outcome,
    is_settled,
    is_without_outcome,
    known_outcome,
    outcome_basis,
    with_outcome,
)
from txnwatch.state.incidents.event_order import (
    NextStep,
    differs,
    found_too,
    is_update_of_span,
    needs_confirmation,
    step_of_span,
    step_of_transaction,
    with_newer_verdict,
)
from txnwatch.state.model.findings import (
    CoverInDoubt,
    Finding,
    OwnerInDoubt,
    SpanCandidate,
    SpanEnd,
    SpanEnded,
    StrayWrite,
    TransactionCandidate,
    TransactionMoved,
)
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, resolved, updated
from txnwatch.state.model.ports import SpanHistory, SpanStart, TransactionAdmin
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import NO_ATTEMPT, Attempts, CoordinatorAccess, DurationMs, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import Verdict, rank

# Events about transactions that their coordinator still has: stuck, late and long running ones.


@dataclass(slots=True)
class TransactionIncidents:
    """Opens, changes and ends incidents about whole transactions."""

    origin: Origin
    admin: TransactionAdmin
    claims: Claims
    store: IncidentStore
    findings: Findings
    queues: ConfirmationQueues
    answers: Answers
    now_ms: Callable[[], TimestampMs]

    def moved(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        """The ends of incidents whose transaction the coordinator has moved on."""
        for moved in emitted:
            if isinstance(moved, TransactionMoved):
                incident = self.store.open_one(
                    self.claims.transaction_id(moved.producer_id, moved.candidate_view, moved)
                )
                if incident is not None:
                    yield self.claims.end(incident, ending.transaction_resolution(moved, now_ms), now_ms)

    def new(self, emitted: Sequence[Finding]) -> Iterable[IncidentEvent]:
        """Events about candidates that a fresh read confirms."""
        candidates = (one for one in emitted if isinstance(one, TransactionCandidate) and self._is_worse(one))
        new = [one for one in self.queues.transactions.next(candidates, self.now_ms()) if self._is_worse(one)]
        for candidate, found in confirm_transactions(self.admin, new):
            if not self.answers.is_confirmed(
                candidate.verdict, candidate.view.transactional_id, found.answer, found.why, self.now_ms()
            ):
                continue
            event = event_builder.transaction_event(self.origin, candidate, found, self.now_ms())
            known = self.store.open_one(event.incident_id)
            if known is None:
                event = self.store.enter(replace(event, incident_id=self.store.unused(event.incident_id)))
                yield event
            elif step_of_transaction(known, candidate.verdict) is NextStep.CHANGE_VERDICT:
                worse = replace(known, verdict=event.verdict, severity=event.severity, overdue_ms=event.overdue_ms)
                event = self.store.enter(updated(worse, event.time_ms))
                yield event
            else:  # published already
                ours = found_too(known, event)
                if differs(known, ours):
                    ours = updated(ours, event.time_ms)
                    yield ours
                event = self.store.enter(ours)
            self.findings.transactions[event.incident_id] = candidate

    def _is_worse(self, candidate: TransactionCandidate) -> bool:
        """Whether the candidate is new, or worse than the open incident: long_running that has become late."""
        known = self.store.open_one(self.claims.transaction_id(candidate.producer_id, candidate.view, candidate))
        is_found = known is not None and known.incident_id in self.findings.transactions
        return needs_confirmation(known, candidate.verdict, is_found=is_found)


# Finds outcomes that were not known when their incident was opened, by retries with backoff.
#
# An incident is published without waiting for its outcome. A missing answer is requested again after growing pauses,
# for a limited number of spans per batch, first those that have waited longest. A read that is not finished continues
# in the next batch. An outcome that cannot be known is not requested again until the state emits other values for the
# span, and the incident says why. An outcome is published only if a fresh read shows the same data that this process
# confirmed before.

AT_A_TIME = 200


@dataclass(slots=True)
class _Awaited:
    """A span whose outcome may still be found, with its latest candidate."""

    candidate: SpanCandidate
    attempts: Attempts = NO_ATTEMPT

    def later(self, now_ms: TimestampMs, *, is_under_way: bool = False) -> None:
        self.attempts = self.attempts._replace(due_ms=now_ms) if is_under_way else self.attempts.next(now_ms)


@dataclass(slots=True)
class OutcomeRetries:
    """Open incidents whose outcome is awaited, and those whose outcome cannot be known."""

    origin: Origin
    admin: TransactionAdmin
    store: IncidentStore
    findings: Findings
    _awaited: dict[str, _Awaited] = field(default_factory=dict)
    _settled: dict[str, Hashable] = field(default_factory=dict)

    def opened(self, incident: IncidentEvent, candidate: SpanCandidate, outcome: Outcome) -> None:
        """Registers a published incident whose outcome is not known."""
        if outcome.outcome == ExpectedOutcome.UNKNOWN:
            self._take(incident, _Awaited(candidate), outcome, incident.time_ms)

    def found(self, emitted: Iterable[Finding], now_ms: TimestampMs) -> Iterator[IncidentEvent]:
        """The next events of incidents whose outcomes are now known."""
        for candidate in emitted:
            if isinstance(candidate, SpanCandidate):
                known = self.store.open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
                if is_without_outcome(known):
                    self._repeated(known.incident_id, candidate, now_ms)
        due = [incident for incident in self._due(now_ms) if self._evidence(incident) is not None]
        starts = {incident.incident_id: self._start(incident) for incident in due}
        histories = self.admin.read_span_histories(starts.values()) if due else {}
        readable: list[tuple[IncidentEvent, SpanHistory]] = []
        for incident in due:
            history = histories[starts[incident.incident_id]]
            if history.problem is None:
                readable.append((incident, history))
            else:
                self._awaited[incident.incident_id].later(now_ms, is_under_way=history.is_being_read)
        candidates = [self._awaited[incident.incident_id].candidate for incident, _ in readable]
        for (incident, history), (_, fresh) in zip(readable, confirm_spans(self.admin, candidates), strict=True):
            outcome = self._judge(incident, replace(fresh, history=history), now_ms)
            is_answered = fresh.answer is Answer.CONFIRMED and is_settled(incident, outcome)
            if is_answered or outcome.outcome != ExpectedOutcome.UNKNOWN:
                yield self.store.enter(self._next(incident, outcome, fresh.description, now_ms))

    def _repeated(self, incident_id: str, candidate: SpanCandidate, now_ms: TimestampMs) -> None:
        """Handles a repeated candidate of an open incident, which may have more information than before."""
        known = self._awaited.get(incident_id)
        if known is not None:
            known.candidate = candidate
        elif self._settled.get(incident_id) != outcome_basis(candidate):
            self._awaited[incident_id] = _Awaited(candidate, Attempts(0, now_ms))

    def _due(self, now_ms: TimestampMs) -> list[IncidentEvent]:
        known = self.store.known
        self._awaited = {one: awaited for one, awaited in self._awaited.items() if is_without_outcome(known.get(one))}
        self._settled = {one: basis for one, basis in self._settled.items() if is_without_outcome(known.get(one))}
        due = ((awaited.attempts.due_ms, one) for one, awaited in self._awaited.items())
        line = sorted((due_ms, one) for due_ms, one in due if due_ms <= now_ms)
        return [known[one] for _, one in line[:AT_A_TIME]]

    def _start(self, incident: IncidentEvent) -> SpanStart:
        """The start of the span that this process has found; the one in an event may be forged."""
        candidate, evidence = self._awaited[incident.incident_id].candidate, self._evidence(incident)
        assert evidence is not None
        return SpanStart(candidate.partition, candidate.producer_id, evidence.start_offset)

    def _evidence(self, incident: IncidentEvent) -> ProvenHang | None:
        return self.findings.get(key_of(self._awaited[incident.incident_id].candidate))

    def _judge(self, incident: IncidentEvent, fresh: SpanConfirmation, now_ms: TimestampMs) -> Outcome:
        awaited = self._awaited.pop(incident.incident_id)
        if is_same_data(self.findings.get(key_of(awaited.candidate)), fresh):
            evidence = self.findings.confirmed(awaited.candidate, fresh, now_ms)
            outcome = agreed(known_outcome(awaited.candidate, fresh), evidence)
        else:
            outcome = unconfirmed(fresh)
        if outcome.outcome == ExpectedOutcome.UNKNOWN:
            self._take(incident, awaited, outcome, now_ms)
        return outcome

    def _next(
        self, incident: IncidentEvent, outcome: Outcome, owner: DescribedTransaction | None, now_ms: TimestampMs
    ) -> IncidentEvent:
        start = incident.txn_start_offset
        assert start is not None
        written_by = ProducerIdentity(incident.producer_id, incident.producer_epoch)
        data = HangingData(where(incident), start, written_by, outcome.outcome)
        command = end_hanging(self.origin, data, owner)
        return updated(replace(with_outcome(incident, outcome), suggested_command=command), now_ms)

    def _take(self, incident: IncidentEvent, awaited: _Awaited, outcome: Outcome, now_ms: TimestampMs) -> None:
        if not outcome.is_awaited:
            self._settled[incident.incident_id] = outcome_basis(awaited.candidate)
        else:
            awaited.later(now_ms, is_under_way=outcome.is_being_read)
            self._awaited[incident.incident_id] = awaited


OUTCOME_BUDGET_MS = DurationMs(500)


@dataclass(slots=True)
class SpanIncidents:
    """Opens, changes and ends incidents about spans.

    Attributes:
        refuted: the partitions whose leader has refuted a candidate of the last batch.
    """

    origin: Origin
    admin: TransactionAdmin
    claims: Claims
    store: IncidentStore
    findings: Findings
    follow_up: FollowUp
    checks: OpenChecks
    outcomes: OutcomeRetries
    queues: ConfirmationQueues
    answers: Answers
    now_ms: Callable[[], TimestampMs]
    refuted: set[TopicPartition]

    def ended(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        """The ends of incidents whose span has ended."""
        ends = [
            (ended, incident)
            for ended in emitted
            if isinstance(ended, SpanEnded)
            and (incident := self.store.open_span(ended.span.topic_id, ended.partition, ended.producer_id))
        ]
        names = {incident.transactional_id for ended, incident in ends if ended.how is SpanEnd.MARKER}
        named = sorted(name for name in names if name is not None)
        owners = self.admin.describe_transactions(named) if named else {}
        for ended, incident in ends:
            ours = self.findings.marker((ended.span.topic_id, ended.partition, ended.producer_id))
            owner = owners.get(incident.transactional_id or "")
            yield self.claims.end(incident, ending.span_resolution(ended, incident, owner, now_ms, ours), now_ms)
        for one in emitted:
            if isinstance(one, SpanEnded):
                self.findings.over((one.span.topic_id, one.partition, one.producer_id))

    def learned_owners(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        """Updates with the owner, if a candidate that is repeated names it now."""
        for candidate in emitted:
            if isinstance(candidate, SpanCandidate) and candidate.view is not None and self._is_open(candidate):
                known = self.store.open_span(candidate.span.topic_id, candidate.partition, candidate.producer_id)
                if known is not None and known.transactional_id is None:
                    name = candidate.view.transactional_id
                    named = updated(replace(known, transactional_id=name), now_ms)
                    yield self.store.enter(self.claims.as_found(named))

    def withdrawn_outcomes(self, now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        """Updates of incidents with a published outcome that no longer counts."""
        for incident in self.store.open_incidents:
            if incident.verdict == Verdict.HANGING and self.claims.is_found(incident):
                found = self.claims.as_found(incident)
                if found.expected_outcome == ExpectedOutcome.UNKNOWN != incident.expected_outcome:
                    yield self.store.enter(updated(found, now_ms))

    def stray_writes(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        """Events for stray writes. No fresh read: the log shows two epochs in one span, or two barriers prove it."""
        for stray in emitted:
            if isinstance(stray, StrayWrite):
                event = event_builder.stray_event(self.origin, stray, now_ms)
                is_known = self.store.open_span(stray.topic_id, stray.partition, stray.producer_id) is not None
                if is_known or self.claims.is_published(event):
                    continue
                event = replace(event, incident_id=self.store.unused(event.incident_id))
                yield self.store.enter(event)
                if stray.joined.marker is not None:
                    yield self.store.enter(resolved(event, now_ms, ending.absorbed(stray.joined.marker, now_ms)))

    def new(self, emitted: Sequence[Finding]) -> Iterable[IncidentEvent]:
        """Events about candidates that a fresh read confirms."""
        now_ms = self.now_ms()
        candidates = (one for one in emitted if isinstance(one, SpanCandidate) and not self._is_settled(one))
        doubts = (one.candidate for one in emitted if isinstance(one, CoverInDoubt | OwnerInDoubt))
        new, held = self.queues.spans.next(candidates, now_ms), self.queues.held.next(doubts, now_ms)
        confirmations = self._read_again(
            [one for one in new if not self._is_settled(one)],
            [one for one in held if not self._is_settled(one)],
        )
        confirmed = [pair for pair in confirmations if pair[1].answer is Answer.CONFIRMED]
        topics = {candidate.partition.topic for candidate, _ in confirmed}
        policies = self.admin.cleanup_policies(topics) if topics else {}
        readings = {candidate.partition: found.reading for candidate, found in confirmed if found.reading is not None}
        spans = [start_of(candidate, found) for candidate, found in confirmed]
        around = self.follow_up.around(readings, self.now_ms(), spans=spans)
        with self.admin.within(OUTCOME_BUDGET_MS):  # if time runs out, the outcome is found later
            whole = dict(with_histories(self.admin, confirmed))
        for candidate, found in confirmations:
            if found.answer is Answer.REFUTED and not self._was_only_asked(found):
                self.refuted.add(candidate.partition)
            if self._is_confirmed(candidate, found):
                policy = policies.get(candidate.partition.topic)
                yield from self._confirmed(candidate, whole[candidate], policy, around.get(candidate.partition))

    def _is_confirmed(self, candidate: SpanCandidate, found: SpanConfirmation) -> bool:
        what = f"{candidate.partition}@{candidate.span.start_offset} of producer id {candidate.producer_id}"
        return self.answers.is_confirmed(candidate.verdict, what, found.answer, found.why, self.now_ms())

    def _confirmed(
        self,
        candidate: SpanCandidate,
        found: SpanConfirmation,
        cleanup_policy: str | None,
        around: Surroundings | None,
    ) -> Iterable[IncidentEvent]:
        """Stores the evidence of a confirmed candidate, and yields the events about it."""
        key, evidence = key_of(candidate), self.findings.confirmed(candidate, found, self.now_ms())
        event = event_builder.span_event(self.origin, candidate, found, cleanup_policy, self.now_ms(), evidence.known)
        event = around.added_to(event) if around is not None else event
        self.checks.not_after(event.time_ms + SECOND_LOOK_MS)
        yield from self._hanging(candidate, event)
        known = self.store.open_span(*key)
        if known is not None:
            self.findings.published_as(key, known.incident_id)
            self.outcomes.opened(known, candidate, agreed(known_outcome(candidate, found), evidence))

    def _read_again(
        self, new: Sequence[SpanCandidate], held: Sequence[SpanCandidate]
    ) -> list[tuple[SpanCandidate, SpanConfirmation]]:
        """Fresh reads of candidates; `held` are those about which the coordinators' log proves nothing."""
        match self.origin.coordinator_view:
            case CoordinatorAccess.LOG:
                return confirm_spans(self.admin, new) + confirm_contradicted(self.admin, held)
            case CoordinatorAccess.API:
                return confirm_asked(self.admin, held, self.now_ms())
            case CoordinatorAccess.NONE:
                return confirm_overdue(self.admin, new)

    def _was_only_asked(self, found: SpanConfirmation) -> bool:
        """Whether a live transaction holds a span about which no log was read: its leader contradicts nothing."""
        return self.origin.coordinator_view is CoordinatorAccess.API and found.description is not None

    def _hanging(self, candidate: SpanCandidate, event: IncidentEvent) -> Iterable[IncidentEvent]:
        """Events for a confirmed hanging span: it opens an incident, ends an older one, or changes a published one."""
        known, now_ms = self.store.open_span(*key_of(candidate)), event.time_ms
        step = step_of_span(known, event)
        if known is not None and step is NextStep.END_AND_OPEN:
            yield self.claims.end(known, ending.no_longer_open(now_ms, "another transaction is open there now"), now_ms)
        if known is None or step is NextStep.END_AND_OPEN:
            yield self.store.enter(replace(event, incident_id=self.store.unused(event.incident_id)))
        elif step is NextStep.CHANGE_VERDICT:
            yield self.store.enter(updated(with_newer_verdict(known, event), now_ms))
        else:
            yield from self._found_too(known, event)

    def _found_too(self, known: IncidentEvent, event: IncidentEvent) -> Iterable[IncidentEvent]:
        """An incident published before a restart or by another writer: its content becomes what was found here."""
        ours = found_too(known, event)
        if is_update_of_span(known, ours):
            ours = updated(ours, event.time_ms)
            yield ours
        self.store.enter(ours)

    def _is_open(self, candidate: SpanCandidate) -> bool:
        """Whether an incident with the same verdict is open; a stray write that hangs later has another verdict."""
        known = self.store.open_span(*key_of(candidate))
        return known is not None and known.verdict == candidate.verdict

    def _is_settled(self, candidate: SpanCandidate) -> bool:
        """Whether the incident is published, and this process has found it itself; or it has a worse verdict."""
        self.findings.repeated(candidate)
        known = self.store.open_span(*key_of(candidate))
        if known is not None and rank(known.verdict) < rank(candidate.verdict):
            return True
        return known is not None and known.verdict == candidate.verdict and self.claims.is_found(known)
