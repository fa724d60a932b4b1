"""Incidents from findings, about spans and about whole transactions: opens, changes and ends them.

Hanging spans, and transactions that their coordinator still has (stuck, late and long running ones), are confirmed by a
fresh read. Stray writes are proven by the log itself. An open incident learns its outcome and its owner later.

Apart: ledger.py has the order of all parts; with this one it would have more than 600 lines (decision 0046).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from txnwatch.state.evidence import ending
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.ending import SECOND_LOOK_MS
from txnwatch.state.evidence.outcome import Outcome, is_settled, known_outcome, outcome_basis, with_outcome
from txnwatch.state.evidence.proven_hang import ProvenHang, agreed, is_same_data, unconfirmed
from txnwatch.state.incidents import event_builder
from txnwatch.state.incidents.abort_protocol import closing_marker
from txnwatch.state.incidents.book import Book, is_same_span
from txnwatch.state.incidents.checking import OpenChecks, Surroundings, changed
from txnwatch.state.incidents.claims import differs, found_too, with_newer_verdict
from txnwatch.state.incidents.confirm import (
    ConfirmationQueues,
    CountedConfirmations,
    confirm_asked,
    confirm_contradicted,
    confirm_overdue,
    confirm_spans,
    confirm_transactions,
    start_at_leader,
    with_histories,
)
from txnwatch.state.incidents.life import Happening, NextStep, confirmed_span, confirmed_transaction
from txnwatch.state.incidents.own_findings import key_of
from txnwatch.state.incidents.wanted import (
    Change,
    DescribeTransactions,
    Now,
    Plan,
    ReadCleanupPolicies,
    ReadFormerOwners,
    ReadHistories,
    Within,
    ask,
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
from txnwatch.state.model.incident import (
    ExpectedOutcome,
    IncidentEvent,
    Resolution,
    SpanKey,
    updated,
)
from txnwatch.state.model.pauses import Attempts
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import (
    AT_ONCE,
    NEVER_MS,
    CoordinatorAccess,
    DurationMs,
    SpanStart,
    TimestampMs,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import Reason, Verdict, rank
from txnwatch.state.telling.commands import with_command

OUTCOME_BUDGET_MS = DurationMs(500)
END_BUDGET_MS = DurationMs(500)
_ANOTHER = "another transaction is open there now"
_MAY_HAVE_MARKER = frozenset({SpanEnd.MARKER, SpanEnd.CENSUS})
Confirmed = list[tuple[SpanCandidate, SpanConfirmation]]


@dataclass(slots=True)
class SpanIncidents:
    """Opens, changes and ends incidents about spans.

    Attributes:
        refuted: the partitions whose leader has refuted a candidate of the last batch.
        unread: ends of spans whose markers did not fit into the time of the last batch.
    """

    book: Book
    checks: OpenChecks
    outcomes: OutcomeRetries
    queues: ConfirmationQueues
    answers: CountedConfirmations
    refuted: set[TopicPartition] = field(default_factory=set)
    unread: list[SpanEnded] = field(default_factory=list)

    def end_over(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        """Ends incidents whose span has ended, and drops the findings about it.

        Where only a census knew the span and no longer lists its partition, the topic may be hidden: a check of the
        incident reads it by its name now, and ends it if it is deleted.
        """
        book = self.book
        over = [*self.unread, *(finding for finding in emitted if isinstance(finding, SpanEnded))]
        keyed = [(end, _key_of_end(end)) for end in over]
        ends = [
            (end, key, open_incident) for end, key in keyed if (open_incident := self._ended_by(end, key)) is not None
        ]
        checked = {key for end, key, _ in ends if end.how is SpanEnd.NOT_LISTED}
        if checked:
            self.checks.not_after(now_ms)
        ends = [ended for ended in ends if ended[1] not in checked]
        ends, self.unread = yield from ask(Within(END_BUDGET_MS, with_closing_markers(book, ends)))
        names = {incident.transactional_id for ended, _, incident in ends if ended.how is SpanEnd.MARKER}
        named = sorted(name for name in names if name is not None)
        owners = (yield from ask(DescribeTransactions(named))) if named else {}
        for ended, key, incident in ends:
            owner = owners.get(incident.transactional_id or "")
            proof, ours = book.findings.get(key), book.findings.marker(key)
            view = proof.candidate.view if proof is not None else None
            resolution = ending.span_resolution(ended, incident, owner, now_ms, view, ours)
            yield from end_found_here(book, incident, resolution, now_ms)
        for key in {key for _, key in keyed}.difference(checked, map(_key_of_end, self.unread)):
            book.findings.over(key)

    def _ended_by(self, ended: SpanEnded, key: SpanKey) -> IncidentEvent | None:
        """The open incident that ends with a span."""
        incident = self.book.store.open_span(*key)
        return incident if incident is not None and not ending.is_of_earlier_data(ended.span, incident) else None

    def learn_owners(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        """Changes incidents without an owner, if a candidate that is repeated names it now."""
        for candidate in emitted:
            if isinstance(candidate, SpanCandidate) and candidate.view is not None:
                incident = self.book.open_about(candidate)
                if incident is not None and incident.verdict == candidate.verdict and incident.transactional_id is None:
                    named = updated(replace(incident, transactional_id=candidate.view.transactional_id), now_ms)
                    yield from changed(self.book, incident, self.book.as_found(named))

    def tell_stray_writes(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        """Publishes stray writes. No fresh read: the log shows two epochs in one span, or two barriers prove it."""
        store = self.book.store
        for stray in emitted:
            if isinstance(stray, StrayWrite):
                event = event_builder.stray_event(self.book.origin, stray, now_ms, self.book.looks)
                incident = store.open_span(stray.topic_id, stray.partition, stray.producer_id)
                if incident is not None and incident.verdict == Verdict.STRAY_WRITE and is_same_span(incident, event):
                    self.book.findings.stray_writes.add(incident.incident_id)  # another instance has told it first
                then = self.book.step(incident, Happening.STRAY_WRITE)
                if then is not NextStep.OPEN or self.book.is_published(event):
                    continue
                event = replace(event, incident_id=store.unused(event.incident_id))
                self.book.findings.stray_writes.add(event.incident_id)
                yield Change(event, then)
                if stray.joined.marker is not None:
                    yield from end_found_here(self.book, event, ending.absorbed(stray.joined.marker, now_ms), now_ms)

    def open_confirmed(self, emitted: Sequence[Finding]) -> Plan[None]:
        """Publishes candidates that a fresh read confirms."""
        now_ms = yield from ask(Now())
        candidates = (
            finding for finding in emitted if isinstance(finding, SpanCandidate) and not self._is_settled(finding)
        )
        doubts = (doubt.candidate for doubt in emitted if isinstance(doubt, CoverInDoubt | OwnerInDoubt))
        new, held = self.queues.spans.next(candidates, now_ms), self.queues.held.next(doubts, now_ms)
        confirmations = yield from self._read_again(
            [candidate for candidate in new if not self._is_settled(candidate)],
            [candidate for candidate in held if not self._is_settled(candidate)],
        )
        confirmed = [pair for pair in confirmations if pair[1].answer is Answer.CONFIRMED]
        topics = {candidate.partition.topic for candidate, _ in confirmed}
        policies = (yield from ask(ReadCleanupPolicies(topics))) if topics else {}
        readings = {
            candidate.partition: confirmation.reading
            for candidate, confirmation in confirmed
            if confirmation.reading is not None
        }
        spans = [start_at_leader(candidate, confirmation) for candidate, confirmation in confirmed]
        around = yield from self.checks.follow_up.around(readings, (yield from ask(Now())), spans=spans)
        # If time runs out, the outcome is found later.
        whole = dict((yield from ask(Within(OUTCOME_BUDGET_MS, with_histories(confirmed)))))
        for candidate, confirmation in confirmations:
            if confirmation.answer is Answer.REFUTED and not self._was_only_asked(confirmation):
                self.refuted.add(candidate.partition)
            what = str(candidate.start)
            self.answers.undecided.take(candidate, confirmation, now_ms)
            if (yield from self.answers.is_confirmed(candidate.verdict, what, confirmation.answer, confirmation.why)):
                policy = policies.get(candidate.partition.topic)
                yield from self._confirmed(candidate, whole[candidate], policy, around.get(candidate.partition))

    def _confirmed(
        self,
        candidate: SpanCandidate,
        confirmation: SpanConfirmation,
        cleanup_policy: str | None,
        around: Surroundings | None,
    ) -> Plan[None]:
        """Stores the evidence of a confirmed candidate, and makes the step that follows."""
        key, now_ms = key_of(candidate), (yield from ask(Now()))
        evidence = self.book.findings.confirmed(candidate, confirmation, now_ms, self.book.looks.last)
        first_look = self.book.looks.of(candidate.first_barrier)
        event = event_builder.span_event(
            self.book.origin, candidate, confirmation, cleanup_policy, now_ms, evidence.known, first_look
        )
        event = around.added_to(event) if around is not None else event
        self.checks.not_after(event.time_ms + SECOND_LOOK_MS)
        yield from self._hanging(self.book.open_about(candidate), event)
        incident = self.book.open_about(candidate)  # the ledger has stored the change, so it is the new event
        if incident is not None:
            self.book.findings.published_as(key, incident.incident_id)
            self.outcomes.opened(incident, candidate, agreed(known_outcome(candidate, confirmation), evidence))

    def _read_again(self, new: Sequence[SpanCandidate], held: Sequence[SpanCandidate]) -> Plan[Confirmed]:
        """Fresh reads of candidates; `held` are those about which the coordinators' log proves nothing."""
        match self.book.origin.coordinator_view:
            case CoordinatorAccess.LOG:
                confirmations = yield from confirm_spans(new)
                return [*confirmations, *(yield from confirm_contradicted(held))]
            case CoordinatorAccess.API:
                return (yield from confirm_asked(held, (yield from ask(Now()))))
            case CoordinatorAccess.NONE:
                return (yield from confirm_overdue(new))

    def _was_only_asked(self, confirmation: SpanConfirmation) -> bool:
        """Whether a live transaction holds a span about which no log was read: its leader contradicts nothing."""
        return self.book.origin.coordinator_view is CoordinatorAccess.API and confirmation.description is not None

    def _hanging(self, incident: IncidentEvent | None, event: IncidentEvent) -> Plan[None]:
        """Makes the step of a confirmed hanging span: it opens an incident, ends an older one, or changes one."""
        book, now_ms = self.book, event.time_ms
        then = book.step(incident, confirmed_span(incident, event))
        if incident is not None and then is NextStep.END_AND_OPEN:
            yield Change(book.end_of(incident, ending.no_longer_open(now_ms, _ANOTHER), now_ms), then)
        if then in {NextStep.OPEN, NextStep.END_AND_OPEN}:
            yield Change(replace(event, incident_id=book.store.unused(event.incident_id)), NextStep.OPEN)
        elif incident is not None and then is NextStep.CHANGE_VERDICT:
            yield from adopted(with_newer_verdict(incident, event), is_update=True, now_ms=now_ms)
        elif incident is not None and then is NextStep.ADOPT:
            ours = found_too(incident, event)
            yield from adopted(ours, is_update=is_update_of_span(incident, ours), now_ms=now_ms)

    def _is_settled(self, candidate: SpanCandidate) -> bool:
        """Whether the incident is published, and this process has found it itself; or it has a worse verdict."""
        self.book.findings.repeated(candidate)
        incident = self.book.open_about(candidate)
        if incident is None:
            return False
        if rank(incident.verdict) < rank(candidate.verdict):
            return True
        return incident.verdict == candidate.verdict and self.book.is_found(incident)


_EndOfIncident = tuple[SpanEnded, SpanKey, IncidentEvent]


def with_closing_markers(
    book: Book, ends: Sequence[_EndOfIncident]
) -> Plan[tuple[list[_EndOfIncident], list[SpanEnded]]]:
    """The ends, with the markers that the log of the partition shows and the state has not read.

    The state does not read them if the partition is watched by censuses only, or if a part of its log was not read. The
    evidence of another writer is not believed: it says where the marker is searched for.

    Also returns the ends that have not had the whole time: their incidents stay open until the next batch.
    """
    ready: list[_EndOfIncident] = []
    unread: list[SpanEnded] = []
    begin_ms = now_ms = yield from ask(Now())
    for ended, key, incident in ends:
        closing = None
        is_open_question = ended.marker is None and ended.how in _MAY_HAVE_MARKER
        if is_open_question and book.is_found(incident) and not ending.is_another(ended.span, incident):
            spent_ms = elapsed(begin_ms, now_ms)
            closing = (yield from closing_marker(incident)) if spent_ms < END_BUDGET_MS else None
            now_ms = yield from ask(Now())
            if closing is None and spent_ms > 0 and elapsed(begin_ms, now_ms) >= END_BUDGET_MS:
                unread.append(ended)
                continue
        ready.append((ended if closing is None else ending.with_marker(ended, closing), key, incident))
    return ready, unread


def end_found_here(book: Book, incident: IncidentEvent, resolution: Resolution, now_ms: TimestampMs) -> Plan[None]:
    """Ends an open incident."""
    then = book.step(book.store.known.get(incident.incident_id), Happening.OVER)
    if then is NextStep.END:
        yield Change(book.end_of(incident, resolution, now_ms), then)


def adopted(ours: IncidentEvent, *, is_update: bool, now_ms: TimestampMs) -> Plan[None]:
    """Stores what was found about a published incident, and publishes it if it is an update."""
    if is_update:
        yield Change(updated(ours, now_ms), NextStep.UPDATE)
    else:
        yield Change(ours, NextStep.ADOPT)


def is_update_of_span(published: IncidentEvent, ours: IncidentEvent) -> bool:
    """Whether what was found about a published span is published too: it differs, or it adds the outcome or the id."""
    is_outcome_new = published.expected_outcome == ExpectedOutcome.UNKNOWN != ours.expected_outcome
    is_owner_new = published.transactional_id is None is not ours.transactional_id
    return differs(published, ours) or is_outcome_new or is_owner_new


def _key_of_end(ended: SpanEnded) -> SpanKey:
    return ended.span.topic_id, ended.partition, ended.producer_id


@dataclass(slots=True)
class TransactionIncidents:
    """Opens, changes and ends incidents about whole transactions."""

    book: Book
    queues: ConfirmationQueues
    answers: CountedConfirmations

    def end_over(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        """Ends incidents whose transaction the coordinator has moved on."""
        book = self.book
        for moved in emitted:
            if isinstance(moved, TransactionMoved):
                first = book.transaction_id(moved.producer_id, moved.candidate_view, moved)
                incident = book.store.open_one(first)
                if incident is not None:
                    yield from end_found_here(book, incident, ending.transaction_resolution(moved, now_ms), now_ms)

    def open_confirmed(self, emitted: Sequence[Finding]) -> Plan[None]:
        """Publishes candidates that a fresh read confirms."""
        now_ms = yield from ask(Now())
        candidates = (
            finding for finding in emitted if isinstance(finding, TransactionCandidate) and self._is_worse(finding)
        )
        new = [
            candidate for candidate in self.queues.transactions.next(candidates, now_ms) if self._is_worse(candidate)
        ]
        for candidate, confirmation in (yield from confirm_transactions(new)):
            name = candidate.view.transactional_id
            if (yield from self.answers.is_confirmed(candidate.verdict, name, confirmation.answer, confirmation.why)):
                now_ms = yield from ask(Now())
                event = event_builder.transaction_event(self.book.origin, candidate, confirmation, now_ms)
                incident_id = yield from self._confirmed(event)
                self.book.findings.transactions[incident_id] = candidate

    def _confirmed(self, event: IncidentEvent) -> Plan[str]:
        """Makes the step of a confirmed candidate; returns the id of its incident."""
        store = self.book.store
        incident = store.open_one(event.incident_id)
        then = self.book.step(incident, confirmed_transaction(incident, event))
        if then is NextStep.OPEN:
            event = replace(event, incident_id=store.unused(event.incident_id))
            yield Change(event, then)
        elif incident is not None and then is NextStep.CHANGE_VERDICT:
            worse = replace(incident, verdict=event.verdict, severity=event.severity, overdue_ms=event.overdue_ms)
            yield Change(updated(worse, event.time_ms), then)
        elif incident is not None and then is NextStep.ADOPT:
            ours = found_too(incident, event)
            yield from adopted(ours, is_update=differs(incident, ours), now_ms=event.time_ms)
        return event.incident_id if incident is None else incident.incident_id

    def _is_worse(self, candidate: TransactionCandidate) -> bool:
        """Whether the candidate is new, or worse than the open incident: long_running that has become late."""
        first = self.book.transaction_id(candidate.producer_id, candidate.view, candidate)
        incident = self.book.store.open_one(first)
        is_found = incident is not None and incident.incident_id in self.book.findings.transactions
        return needs_confirmation(incident, candidate.verdict, is_found=is_found)


# What an open incident learns later: its outcome, an outcome that no longer counts, and the name of its owner.
#
# An incident is published without waiting for them. A missing answer is requested again after growing pauses, for a
# limited number of spans per batch, first those that have waited longest. A read that is not finished continues in the
# next batch. An outcome that cannot be known is not requested again until the state emits other values for the span,
# and the incident says why. An outcome is published only if a fresh read shows the same data that this process
# confirmed before.

OUTCOMES_AT_A_TIME = 200


@dataclass(slots=True)
class _Awaited:
    """A span whose outcome may still be found, with its latest candidate."""

    candidate: SpanCandidate
    attempts: Attempts = field(default_factory=Attempts)

    def later(self, now_ms: TimestampMs, *, is_under_way: bool = False) -> None:
        if is_under_way:
            self.attempts.due_ms = now_ms
        else:
            self.attempts.put_off(now_ms)


@dataclass(slots=True)
class OutcomeRetries:
    """Open incidents whose outcome is awaited, and those whose outcome cannot be known."""

    book: Book
    _awaited: dict[str, _Awaited] = field(default_factory=dict)
    _settled: dict[str, Hashable] = field(default_factory=dict)

    @property
    def due_ms(self) -> TimestampMs:
        """When an outcome that is awaited is asked for again: at once, if only the next listing is awaited."""
        proofs = (self.book.findings.get(key_of(awaited.candidate)) for awaited in self._awaited.values())
        if any(evidence is not None and evidence.pending is not None for evidence in proofs):
            return AT_ONCE
        return min((awaited.attempts.due_ms for awaited in self._awaited.values()), default=NEVER_MS)

    def opened(self, incident: IncidentEvent, candidate: SpanCandidate, outcome: Outcome) -> None:
        """Registers a published incident whose outcome is not known."""
        if outcome.outcome == ExpectedOutcome.UNKNOWN:
            self._take(incident, _Awaited(candidate), outcome, incident.time_ms)

    def learn(self, emitted: Iterable[Finding], now_ms: TimestampMs) -> Plan[None]:
        """Changes incidents whose outcomes are now known, or certainly not."""
        for candidate in emitted:
            if isinstance(candidate, SpanCandidate):
                open_incident = self.book.open_about(candidate)
                if self.book.lacks_outcome(open_incident):
                    self._repeated(open_incident.incident_id, candidate, now_ms)
        due = [incident for incident in self._due(now_ms) if self._evidence(incident) is not None]
        starts = {incident.incident_id: self._start(incident) for incident in due}
        histories = (yield from ask(ReadHistories(list(starts.values())))) if due else {}
        readable: list[tuple[IncidentEvent, SpanHistory]] = []
        for incident in due:
            history = histories[starts[incident.incident_id]]
            if history.problem is None:
                readable.append((incident, history))
            else:
                self._awaited[incident.incident_id].later(now_ms, is_under_way=history.is_being_read)
        confirmed = yield from confirm_spans(
            [self._awaited[incident.incident_id].candidate for incident, _ in readable]
        )
        for (incident, history), (_, fresh) in zip(readable, confirmed, strict=True):
            outcome = self._judge(incident, replace(fresh, history=history), now_ms)
            is_answered = fresh.answer is Answer.CONFIRMED and is_settled(incident, outcome)
            if is_answered or outcome.outcome != ExpectedOutcome.UNKNOWN:
                yield from changed(self.book, incident, self._next(incident, outcome, fresh.description, now_ms))

    def withdraw(self, now_ms: TimestampMs) -> Plan[None]:
        """Changes incidents with a published outcome that no longer counts."""
        for incident in self.book.open_incidents:
            if incident.verdict == Verdict.HANGING and self.book.is_found(incident):
                ours = self.book.as_found(incident)
                is_known = ours.expected_outcome != ExpectedOutcome.UNKNOWN
                then = self.book.step(incident, Happening.WITHDRAWN)
                if incident.expected_outcome != ExpectedOutcome.UNKNOWN and not is_known and then is NextStep.UPDATE:
                    yield Change(updated(ours, now_ms), then)

    def _repeated(self, incident_id: str, candidate: SpanCandidate, now_ms: TimestampMs) -> None:
        """Handles a repeated candidate of an open incident, which may have more information than before."""
        awaited = self._awaited.get(incident_id)
        if awaited is not None:
            awaited.candidate = candidate
            evidence = self.book.findings.get(key_of(candidate))
            if evidence is not None and evidence.pending is not None and evidence.pending.is_proven_by(candidate):
                awaited.attempts.due_ms = now_ms
        elif self._settled.get(incident_id) != outcome_basis(candidate):
            self._awaited[incident_id] = _Awaited(candidate, Attempts(due_ms=now_ms))

    def _due(self, now_ms: TimestampMs) -> list[IncidentEvent]:
        incidents = self.book.store.known
        lacking = {
            incident_id
            for incident_id in (*self._awaited, *self._settled)
            if self.book.lacks_outcome(incidents.get(incident_id))
        }
        self._awaited = {
            incident_id: awaited for incident_id, awaited in self._awaited.items() if incident_id in lacking
        }
        self._settled = {incident_id: basis for incident_id, basis in self._settled.items() if incident_id in lacking}
        due = ((incident_id, awaited.attempts) for incident_id, awaited in self._awaited.items())
        line = sorted((attempts.due_ms, incident_id) for incident_id, attempts in due if attempts.is_due(now_ms))
        return [incidents[incident_id] for _, incident_id in line[:OUTCOMES_AT_A_TIME]]

    def _start(self, incident: IncidentEvent) -> SpanStart:
        """The start of the span that this process has found; the one in an event may be forged."""
        candidate, evidence = self._awaited[incident.incident_id].candidate, self._evidence(incident)
        assert evidence is not None
        return candidate.start._replace(start_offset=evidence.start_offset)

    def _evidence(self, incident: IncidentEvent) -> ProvenHang | None:
        return self.book.findings.get(key_of(self._awaited[incident.incident_id].candidate))

    def _judge(self, incident: IncidentEvent, fresh: SpanConfirmation, now_ms: TimestampMs) -> Outcome:
        awaited = self._awaited.pop(incident.incident_id)
        if is_same_data(self.book.findings.get(key_of(awaited.candidate)), fresh):
            evidence = self.book.findings.confirmed(awaited.candidate, fresh, now_ms, self.book.looks.last)
            outcome = agreed(known_outcome(awaited.candidate, fresh), evidence)
        else:
            outcome = unconfirmed(fresh)
        if outcome.outcome == ExpectedOutcome.UNKNOWN:
            self._take(incident, awaited, outcome, now_ms)
        return outcome

    def _next(
        self, incident: IncidentEvent, outcome: Outcome, owner: DescribedTransaction | None, now_ms: TimestampMs
    ) -> IncidentEvent:
        return updated(with_command(self.book.origin, with_outcome(incident, outcome), owner), now_ms)

    def _take(self, incident: IncidentEvent, awaited: _Awaited, outcome: Outcome, now_ms: TimestampMs) -> None:
        if not outcome.is_awaited:
            self._settled[incident.incident_id] = outcome_basis(awaited.candidate)
        else:
            awaited.later(now_ms, is_under_way=outcome.is_being_read)
            self._awaited[incident.incident_id] = awaited


@dataclass(slots=True)
class OwnerSearch:
    """Names the owner of a hang that no coordinator knows: its transactional id has expired, and the log still has it.

    The log is read once for each incident. If it could not be read to its end, it is read again after growing pauses.

    Attributes:
        may_read: whether the coordinators' log can be read; without it no owner is found.
    """

    book: Book
    may_read: bool
    _names: dict[str, str | None] = field(default_factory=dict)
    _attempts: Attempts = field(default_factory=Attempts)

    @property
    def due_ms(self) -> TimestampMs:
        """When the log is read again for an owner."""
        is_left = any(
            incident.incident_id not in self._names
            for incident in self.book.open_incidents
            if self._is_nameless(incident)
        )
        return self._attempts.due_ms if self.may_read and is_left else NEVER_MS

    def learn(self, now_ms: TimestampMs) -> Plan[None]:
        """Changes incidents whose owners are known now."""
        nameless = {
            incident.incident_id: incident for incident in self.book.open_incidents if self._is_nameless(incident)
        }
        self._names = {incident_id: name for incident_id, name in self._names.items() if incident_id in nameless}
        left = [incident for incident in nameless.values() if incident.incident_id not in self._names]
        if self.may_read and left and self._attempts.is_due(now_ms):
            answer = yield from ask(ReadFormerOwners({incident.producer_id for incident in left}))
            if answer.problem is None:
                self._attempts.end()
            else:
                self._attempts.put_off(now_ms)
            answered = [incident for incident in left if incident.producer_id in answer.names]
            self._names.update({incident.incident_id: answer.names[incident.producer_id] for incident in answered})
        for incident_id, name in self._names.items():
            if name is not None:
                named = updated(replace(nameless[incident_id], transactional_id=name), now_ms)
                yield from changed(self.book, nameless[incident_id], self.book.as_found(named))

    def _is_nameless(self, incident: IncidentEvent) -> bool:
        is_without_owner = incident.transactional_id is None and incident.reason == Reason.NO_TRANSACTIONAL_ID
        return is_without_owner and self.book.is_found(incident)


def needs_confirmation(incident: IncidentEvent | None, verdict: Verdict, *, is_found: bool) -> bool:
    """Whether a candidate about a transaction is confirmed: it is new, or worse than what this process has found."""
    return incident is None or not is_found or rank(verdict) < rank(incident.verdict)
