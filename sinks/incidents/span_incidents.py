"""Events about spans: hanging spans are confirmed by a fresh read, stray writes are proven by the log itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from txnwatch.sinks.incidents import event_builder
from txnwatch.sinks.incidents.claims import Claims
from txnwatch.sinks.incidents.commands import Origin
from txnwatch.sinks.incidents.confirm import (
    confirm_asked,
    confirm_contradicted,
    confirm_overdue,
    confirm_spans,
    with_histories,
)
from txnwatch.sinks.incidents.confirmation_queue import Answers, ConfirmationQueues
from txnwatch.sinks.incidents.follow_up import FollowUp, Surroundings
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.open_checks import OpenChecks
from txnwatch.sinks.incidents.outcome_retries import OutcomeRetries
from txnwatch.sinks.incidents.own_findings import Findings, key_of
from txnwatch.state.abort.proven_outcome import agreed
from txnwatch.state.events.claims import found_too, with_newer_verdict
from txnwatch.state.events.next_step import NextStep, is_update_of_span, step_of_span
from txnwatch.state.evidence import incident_end
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.end_check import SECOND_LOOK_MS
from txnwatch.state.evidence.known_outcome import known_outcome
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.findings import (
    CoverInDoubt,
    Finding,
    OwnerInDoubt,
    SpanCandidate,
    SpanEnd,
    SpanEnded,
    StrayWrite,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent, resolved, updated
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.ports import TransactionAdmin
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Verdict, rank

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
            yield self.claims.end(incident, incident_end.span_resolution(ended, incident, owner, now_ms, ours), now_ms)
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
                    yield self.store.enter(resolved(event, now_ms, incident_end.absorbed(stray.joined.marker, now_ms)))

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
        around = self.follow_up.around(readings, self.now_ms())
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
            yield self.claims.end(
                known, incident_end.no_longer_open(now_ms, "another transaction is open there now"), now_ms
            )
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
