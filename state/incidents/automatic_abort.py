"""The automatic abort: ends hanging transactions one at a time, with an event before and after each marker.

Law:
  * It acts only on what this process has found itself (own_findings.py), and reads that again right before it acts.
    Events are not a source.
  * It writes only a marker that a fresh read and state/abort/rules.py allow.
  * An event that announces the marker is on the topic before the marker is written. A read and an event with the result
    follow.
  * Only that read counts, because Kafka answers NONE also to a marker without a transaction. The marker that closed the
    transaction may be another writer's, of the other kind.
  * If the process dies in between, an `abort` without a result remains. The next process reads the partition again and
    publishes what the log shows. It cannot know who wrote the marker.
  * Only the holder of the lease acts. The lease is checked again right before the marker.
  * Refusals are published too, each reason once per incident.

Sans-IO, as the ledger: sinks/abort/run_abort.py carries out the plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.abort.rules import RULE_OF_REFUSAL, AbortSpec, Case, Refused, Usage, decide_abort, objection
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.proven_hang import Marked, ProvenHang
from txnwatch.state.incidents.abort_protocol import (
    FRESH_READ_MS,
    HOUR_MS,
    MarkerProtocol,
    MarkerResult,
    action,
    is_left_without_result,
    read_after,
    recovered,
    too_old,
)
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.confirm import confirm_spans, read_anew
from txnwatch.state.incidents.ledger import CONFIRM_BUDGET_MS, Ledger
from txnwatch.state.incidents.wanted import AskToSpeak, HoldLease, Now, Plan, Say, Within, ask
from txnwatch.state.model.incident import Action, ActionResult, Decision, IncidentEvent, Refusal, updated
from txnwatch.state.model.pauses import Attempts
from txnwatch.state.model.ports import NotSent
from txnwatch.state.model.values import DurationMs, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import RULE_OF
from txnwatch.state.text import Said

# What is decided about open incidents, before and after each micro-batch.

OFF, ON = "off", "on"
MARKERS_AT_A_TIME = 5
_NO_LEASE, _UNDECIDED = "no lease", "undecided"  # what is said once
Tries = dict[str, Attempts]  # by incident
_ActionOf = tuple[str, TimestampMs | None]  # incident id, and when its action was decided


@dataclass(slots=True)
class AutoAbort:
    """Decides about open incidents, before and after every micro-batch of the ledger.

    Attributes:
        mode: off, dry-run or on.
        instance: this instance's name in events; the same after a restart.
        principal: that of its connections, for events; None if it is not known.
        counts: decisions, for the metrics.
    """

    mode: str
    policy: AbortPolicy
    cooldown_ms: DurationMs
    ledger: Ledger
    instance: str
    principal: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    _published: dict[str, set[str]] = field(default_factory=dict)
    _tries: Tries = field(default_factory=dict)
    _read_tries: Tries = field(default_factory=dict)
    _announced: dict[Marked, TimestampMs] = field(default_factory=dict)  # since when each counts, by our own clock
    _known_ms: dict[_ActionOf, TimestampMs] = field(default_factory=dict)  # since when, by our own clock
    _unproven: dict[str, TimestampMs] = field(default_factory=dict)
    _breaker: Breaker | None = None
    _said: Said[str] = field(default_factory=Said)

    def recover(self) -> Plan[None]:
        """Publishes the results of markers that were announced without one.

        Call it before each batch of the ledger, so that the result is published before the end.
        """
        if not (yield from ask(AskToSpeak())).speaks:
            return
        now_ms = yield from ask(Now())
        decided = [(incident, _action_of(incident)) for incident in _of_a_watch(self.ledger.book)]
        self._known_ms = {which: self._known_ms.get(which, now_ms) for _, which in decided}
        left = [
            incident
            for incident, which in decided
            if is_left_without_result(incident.action, self.instance, self._known_ms[which], now_ms)
        ]
        self._read_tries = {
            incident.incident_id: self._read_tries.get(incident.incident_id) or Attempts() for incident in left
        }
        for incident in left:
            tries = self._read_tries[incident.incident_id]
            if tries.is_due(now_ms):
                tries.put_off(now_ms)
                yield from self._publish_result_from_log(incident)

    def on_batch(self) -> Plan[None]:
        """Decides about every open incident that is due; at most `MARKERS_AT_A_TIME` markers per batch."""
        if self.mode == OFF:
            return
        proven = self.ledger.book.proven()
        self._read_announcements((yield from ask(Now())))
        lease = yield from ask(HoldLease())
        yield from self._report_problem(lease.problem)
        if not lease.is_held:
            if lease.problem is None:
                yield from self._watch_the_holder(proven)
            return
        self._said.is_over(_UNDECIDED)
        self._forget({incident.incident_id for incident, _ in proven})
        written = 0
        for incident, evidence in proven:
            tries = self._tries.setdefault(incident.incident_id, Attempts())
            if tries.is_due((yield from ask(Now()))):
                written += yield from self._decide(incident, evidence)
            if written == MARKERS_AT_A_TIME:
                break
        yield from self._refuse_unproven({incident.incident_id for incident, _ in proven})

    def _report_problem(self, problem: str | None) -> Plan[None]:
        """Warns once if this instance cannot ask for the lease."""
        if problem is None:
            self._said.is_over(_NO_LEASE)
        elif self._said.is_new(_NO_LEASE, problem):
            yield Say(f"this instance aborts nothing automatically: {problem}")

    def _watch_the_holder(self, proven: Iterable[tuple[IncidentEvent, ProvenHang]]) -> Plan[None]:
        """Warns if another member holds the lease and decides nothing. Anyone who may join the group can do that."""
        now_ms = yield from ask(Now())
        left = [
            incident
            for incident, evidence in proven
            if is_left_undecided(incident.action, evidence.since_ms, self.policy.after_ms, now_ms)
        ]
        if not left:
            self._said.is_over(_UNDECIDED)
        elif self._said.is_new(_UNDECIDED):
            yield Say(
                f"{len(left)} hanging transactions wait for a decision, but another member of the lease's "
                "consumer group holds the lease and publishes no decision: is it an instance of txnwatch?"
            )

    def _refuse_unproven(self, proven: set[str]) -> Plan[None]:
        """Refuses incidents that others have published and this process does not find; published after a while."""
        now_ms = yield from ask(Now())
        left = [incident for incident in _of_a_watch(self.ledger.book) if incident.incident_id not in proven]
        self._unproven = {incident.incident_id: self._unproven.get(incident.incident_id, now_ms) for incident in left}
        refused = objection((yield from self._case(None, None)))
        for incident in left:
            if refused is not None and is_unproven_for_long(self._unproven[incident.incident_id], now_ms):
                yield from self._refuse(incident, refused)

    def _forget(self, proven: set[str]) -> None:
        kept = proven | self._unproven.keys()
        self._published = {
            incident_id: reasons for incident_id, reasons in self._published.items() if incident_id in kept
        }
        self._tries = {incident_id: tried for incident_id, tried in self._tries.items() if incident_id in proven}

    def _case(self, evidence: ProvenHang | None, confirmation: SpanConfirmation | None) -> Plan[Case]:
        now_ms = yield from ask(Now())
        if self._breaker is not None and not self._breaker.is_open(now_ms):
            self._breaker = None
            yield Say("circuit breaker closed: the automatic abort continues", is_warning=False)
        tripped = self._breaker.why if self._breaker is not None else None
        # A forged event can use up the budget. It does not extend it for the markers that this process has written.
        # Nor does our clock if it is set back: those markers are then in the future.
        done = self._announced | {marked: min(marked[1], now_ms) for marked in self.ledger.findings.marked}
        usage = Usage(markers_last_hour(done.values(), now_ms), len(self.ledger.findings), tripped)
        return Case(evidence, confirmation, self.policy, usage, now_ms)

    def _read_announcements(self, now_ms: TimestampMs) -> None:
        """Counts each marker that an event announces: one of another instance since this process has read it.

        The clock of another instance is not compared with ours. A start reads again what was announced in the last day.
        A later event of the incident, such as our own refusal, does not end the hour.
        """
        counted = self._announced
        decided = ((event.incident_id, event.action) for event in self.ledger.store.known.values())
        self._announced = {
            (incident_id, done.at_ms): done.at_ms
            if done.by == self.instance
            else counted.get((incident_id, done.at_ms), now_ms)
            for incident_id, done in decided
            if done is not None and done.decision is Decision.ABORT
        }
        replaced = [
            marked for marked in counted if marked not in self._announced and counted[marked] > now_ms - HOUR_MS
        ]
        replaced.sort(key=lambda marked: counted[marked], reverse=True)
        # More than the budget change nothing, and others may write any number of events.
        self._announced |= {marked: counted[marked] for marked in replaced[: self.policy.budget_per_hour]}

    def _decide(self, incident: IncidentEvent, evidence: ProvenHang) -> Plan[bool]:
        """Decides about one incident. Returns whether a marker was sent."""
        refused = objection((yield from self._case(evidence, None)))
        if refused is not None:
            yield from self._refuse(incident, refused)
            return False
        read_ms = yield from ask(Now())
        self._tries[incident.incident_id].put_off(read_ms)
        evidence, confirmation = yield from ask(Within(CONFIRM_BUDGET_MS, _read_again(evidence)))
        decision = decide_abort((yield from self._case(evidence, confirmation)))
        if isinstance(decision, Refused):
            yield from self._refuse(incident, decision)
            why = trip_by_refusal(decision, confirmation.answer, evidence.candidate.partition)
            if why is not None:
                yield from self._trip(why)
            return False
        if self.mode != ON:
            yield from self._publish_once(incident, Decision.DRY_RUN, None, "it would be aborted now", decision)
            return False
        return (yield from self._act(incident, confirmation, decision, read_ms))

    def _ours(self, decided: Action) -> Action:
        """With the principal of this instance; a result that replaces it keeps it."""
        return replace(decided, principal=self.principal)

    def _act(
        self, incident: IncidentEvent, confirmation: SpanConfirmation, spec: AbortSpec, read_ms: TimestampMs
    ) -> Plan[bool]:
        assert confirmation.reading is not None
        now_ms, stable = (yield from ask(Now())), confirmation.reading.last_stable_offset
        begun = self._ours(action(Decision.ABORT, self.instance, now_ms, spec=spec, stable_before=stable))
        protocol = MarkerProtocol(
            self.ledger.publish_next,
            obstacle=lambda: _obstacle(read_ms),
            before_write=lambda: self.ledger.findings.marking(incident.incident_id, now_ms),
        )
        event, result = yield from protocol.run(incident, spec, begun, confirmation.reading)
        assert event.action is not None
        self.counts[f"aborts {event.action.result or f'refused ({event.action.refusal})'}"] += 1
        if isinstance(result, NotSent):
            return False
        if result.is_ours and result.closed_by is not None:
            self.ledger.wrote(incident, result.closed_by)
        why = trip_by_result(result, spec.marker.partition)
        if why is not None:
            yield from self._trip(why)
        return True

    def _refuse(self, incident: IncidentEvent, refused: Refused) -> Plan[None]:
        if RULE_OF_REFUSAL[refused.refusal].is_published:
            yield from self._publish_once(incident, Decision.REFUSED, refused.refusal, refused.detail)

    def _publish_once(
        self,
        incident: IncidentEvent,
        decision: Decision,
        refusal: Refusal | None,
        detail: str,
        spec: AbortSpec | None = None,
    ) -> Plan[None]:
        """Publishes a decision that leads to no marker, once for each incident and reason."""
        published = self._published.setdefault(incident.incident_id, set())
        if not published and incident.action is not None:
            published.add(f"{incident.action.decision} {incident.action.refusal}")
        if f"{decision} {refusal}" in published:
            return
        now_ms = yield from ask(Now())
        decided = self._ours(action(decision, self.instance, now_ms, refusal=refusal, detail=detail, spec=spec))
        event = updated(replace(incident, action=decided), now_ms)
        yield from self.ledger.publish_next(event)
        if self.ledger.book.acted.get(incident.incident_id) != decided:
            return  # another event came first
        published.add(f"{decision} {refusal}")
        self.counts[f"aborts {decision}" + (f" ({refusal})" if refusal is not None else "")] += 1

    def _trip(self, why: str) -> Plan[None]:
        """Opens the circuit breaker until the cooldown is over, because more unexpected results may follow."""
        self._breaker = Breaker((yield from ask(Now())) + self.cooldown_ms, why)
        self.counts["circuit breaker opened"] += 1
        pause = f"the automatic abort stops for {self.cooldown_ms / 1000:.0f} s"
        yield Say(f"circuit breaker open: {pause}: {why}")

    def _publish_result_from_log(self, incident: IncidentEvent) -> Plan[None]:
        """Publishes the result of an announced marker, by the log alone; without one, it is read again after a pause.

        Of the announcement only the place is used. Its `end_before` is a claim.
        """
        assert incident.action is not None
        claimed = replace(incident, evidence=replace(incident.evidence, end_before=None))
        is_commit = incident.action.decision is Decision.COMMIT  # by hand, its process is gone
        read = yield from ask(Within(CONFIRM_BUDGET_MS, read_after(claimed, commit=is_commit)))
        result = recovered(incident.action, read)
        if result is not None:
            now_ms = yield from ask(Now())
            yield from self.ledger.publish_next(updated(replace(incident, action=result), now_ms))


def _read_again(evidence: ProvenHang) -> Plan[tuple[ProvenHang, SpanConfirmation]]:
    """The whole proof once more, right before an action."""
    ((_, confirmation),) = yield from confirm_spans([evidence.candidate])
    return (yield from read_anew(evidence, confirmation))


def _obstacle(read_ms: TimestampMs) -> Plan[str | None]:
    """Why the marker must not be written now, after its announcement."""
    if not (yield from ask(HoldLease(is_certain=True))).is_held:
        return "this instance no longer holds the lease"
    return (yield from too_old(read_ms, FRESH_READ_MS))


def _action_of(incident: IncidentEvent) -> _ActionOf:
    return incident.incident_id, incident.action.at_ms if incident.action is not None else None


def _of_a_watch(book: Book) -> list[IncidentEvent]:
    """Incidents about hanging transactions of the watched topics, without those of aborts by hand."""
    hanging = (
        incident
        for incident in book.open_incidents
        if RULE_OF[incident.verdict].needs_marker and not incident.is_by_hand
    )
    return [incident for incident in hanging if book.is_ours(incident)]


# The limits of the automatic abort: its waiting times, its budget, and what opens the circuit breaker.

# The state repeats a candidate within a minute, and a start takes less than another minute.
UNPROVEN_MS: Final = DurationMs(150_000)
IDLE_HOLDER_MS: Final = DurationMs(300_000)


class Breaker(NamedTuple):
    """An open circuit breaker: until when nothing is aborted, and why."""

    until_ms: TimestampMs
    why: str

    def is_open(self, now_ms: TimestampMs) -> bool:
        """Whether nothing may be aborted now."""
        return now_ms < self.until_ms


def markers_last_hour(written_ms: Iterable[TimestampMs], now_ms: TimestampMs) -> int:
    """How many markers count for the budget. A time in the future does not count: an event may be forged."""
    return sum(now_ms - HOUR_MS < at_ms <= now_ms for at_ms in written_ms)


def trip_by_refusal(refused: Refused, answer: Answer, partition: TopicPartition) -> str | None:
    """Why a refusal opens the circuit breaker: a fresh read contradicts a hang that was proven."""
    is_contradicted = refused.refusal is Refusal.STILL_OWNED and answer is Answer.REFUTED
    return f"{partition}: {refused.detail}" if is_contradicted else None


def trip_by_result(result: MarkerResult, partition: TopicPartition) -> str | None:
    """Why the result of a marker opens the circuit breaker; None if the result is as expected."""
    if result.is_denied:
        return f"the broker refuses markers: {result.detail}"
    if result.result is not ActionResult.VERIFIED:
        return f"the abort on {partition} ended with the result {result.result}"
    return None


def is_left_undecided(done: Action | None, proven_ms: TimestampMs, after_ms: DurationMs, now_ms: TimestampMs) -> bool:
    """Whether the holder of the lease should have decided about a hang, and has not. A fence is an operator's."""
    return (done is None or done.decision is Decision.FENCE) and now_ms - proven_ms >= after_ms + IDLE_HOLDER_MS


def is_unproven_for_long(since_ms: TimestampMs, now_ms: TimestampMs) -> bool:
    """Whether a published hang that this process does not find is refused now."""
    return now_ms - since_ms >= UNPROVEN_MS
