"""The verified abort: acts on open incidents, one at a time, and never in silence.

Law: nothing is written that a fresh read and state/abort_plan.py do not allow; the marker is preceded by an event
that is already on its topic, and followed by a reading and an event with what it came to. Kafka answers NONE to a
marker on nothing as well, so only the reading counts, and the marker that it finds to have closed the transaction: it
may be somebody else's, of the other kind. A process that dies in between leaves an `abort` without a
result behind: the next one reads the partition again and tells it. One instance acts, the holder of the lease, which
is asked for once more right before the marker. Refusals are told too, each reason once for an incident.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from txnwatch.sinks.confirm import confirm_spans
from txnwatch.sinks.ledger import CONFIRM_BUDGET_MS, Ledger
from txnwatch.sinks.marking import (
    ABORT,
    DRY_RUN,
    FAILED,
    REFUSED,
    STILL_OPEN,
    UNKNOWN,
    VERIFIED,
    action,
    look_after,
    read_afresh,
    write,
)
from txnwatch.state.abort_case import AbortPolicy, Case, Usage
from txnwatch.state.abort_plan import HOUR_MS, AbortSpec, Refused, candidate_again, decide_abort, objection
from txnwatch.state.abort_rules import RULE_OF_REFUSAL, Refusal
from txnwatch.state.confirmation import Answer, SpanConfirmation
from txnwatch.state.incident import IncidentEvent, updated
from txnwatch.state.ports import Lease
from txnwatch.state.verdict import Verdict

OFF, ON = "off", "on"
MARKERS_AT_A_TIME = 5
FRESH_MS = 5_000  # older than that, a reading is not what a marker is written on
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 60_000
_ABANDONED_MS = 60_000


@dataclass(slots=True)
class AutoAbort:
    """Called after every micro-batch of the ledger.

    Attributes:
        mode: off, dry-run or on.
        lease: None where nothing is to be done anyway.
        instance: this instance's name in events; the same after a restart.
        report: told what an operator should know that is no event.
        counts: decisions, for the metrics.
    """

    mode: str
    policy: AbortPolicy
    cooldown_ms: int
    ledger: Ledger
    lease: Lease | None
    instance: str
    now_ms: Callable[[], int]
    report: Callable[[str], None] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)
    _told: dict[str, set[str]] = field(default_factory=dict)
    _tries: dict[str, tuple[int, int]] = field(default_factory=dict)
    _markers: deque[int] = field(default_factory=deque)
    _tripped: tuple[int, str] | None = None

    def __post_init__(self) -> None:
        """The budget outlives a restart: it is in the events."""
        written = (event.action for event in self.ledger.incidents if event.action is not None)
        self._markers.extend(sorted(done["at_ms"] for done in written if done["decision"] == ABORT))

    def recover(self) -> None:
        """Before each batch of the ledger: what was announced and never told gets its result before its end."""
        for incident in self._hanging():
            if self._is_left_open(incident):
                self._tell_what_became_of(incident)

    def on_batch(self) -> None:
        """Decides about every open incident that is due; at most a few markers a batch."""
        if self.mode == OFF or self.lease is None or not self.lease.is_held():
            return
        hanging = self._hanging()
        self._forget({incident.incident_id for incident in hanging})
        written = 0
        for incident in hanging:
            if self._is_due(incident):
                written += self._decide(incident, len(hanging))
            if written == MARKERS_AT_A_TIME:
                break

    def close(self) -> None:
        """Lets another instance act."""
        if self.lease is not None:
            self.lease.close()

    def _hanging(self) -> list[IncidentEvent]:
        """Those of a watch; one of an abort by hand belongs to that hand."""
        return [
            event for event in self.ledger.open_incidents if event.verdict == Verdict.HANGING and not event.is_by_hand
        ]

    def _forget(self, known: set[str]) -> None:
        self._told = {one: said for one, said in self._told.items() if one in known}
        self._tries = {one: tried for one, tried in self._tries.items() if one in known}

    def _is_due(self, incident: IncidentEvent) -> bool:
        _, due_ms = self._tries.get(incident.incident_id, (0, 0))
        return self.now_ms() >= due_ms

    def _later(self, incident: IncidentEvent) -> None:
        times, _ = self._tries.get(incident.incident_id, (0, 0))
        pause_ms = min(_FIRST_PAUSE_MS * 2 ** min(times, 10), _LONGEST_PAUSE_MS)
        self._tries[incident.incident_id] = (times + 1, self.now_ms() + pause_ms)

    def _case(self, incident: IncidentEvent, found: SpanConfirmation | None, open_hanging: int) -> Case:
        now_ms = self.now_ms()
        while self._markers and self._markers[0] <= now_ms - HOUR_MS:
            self._markers.popleft()
        if self._tripped is not None and now_ms >= self._tripped[0]:
            self._tripped = None
            self.report("the circuit breaker of the automatic abort has closed again")
        tripped = self._tripped[1] if self._tripped is not None else None
        return Case(incident, found, self.policy, Usage(len(self._markers), open_hanging, tripped), now_ms)

    def _decide(self, incident: IncidentEvent, open_hanging: int) -> bool:
        """Whether a marker was written."""
        refused = objection(self._case(incident, None, open_hanging))
        if refused is not None:
            self._refuse(incident, refused)
            return False
        self._later(incident)
        read_ms = self.now_ms()
        with self.ledger.admin.within(CONFIRM_BUDGET_MS):
            ((_, found),) = confirm_spans(self.ledger.admin, [candidate_again(incident)])
        decision = decide_abort(self._case(incident, found, open_hanging))
        if isinstance(decision, Refused):
            self._refuse(incident, decision)
            if decision.refusal is Refusal.STILL_OWNED and found.answer is Answer.REFUTED:
                self._trip(f"{incident.topic}-{incident.partition}: {decision.detail}")
            return False
        if self.mode != ON:
            self._tell_once(incident, DRY_RUN, None, "it would be aborted now", decision)
            return False
        return self._act(incident, found, decision, read_ms)

    def _act(self, incident: IncidentEvent, found: SpanConfirmation, spec: AbortSpec, read_ms: int) -> bool:
        assert found.reading is not None
        stable, now_ms = found.reading.last_stable_offset, self.now_ms()
        begun = action(ABORT, self.instance, now_ms, spec=spec, stable_before=stable)
        ahead = updated(incident, now_ms, action=begun, evidence=read_afresh(incident, found.reading, now_ms))
        if not self.ledger.tell(ahead):
            self._end(ahead, FAILED, "no marker was written: the event that announces it could not be delivered")
            return False
        if self.lease is None or not self.lease.is_held_now():
            self._end(ahead, FAILED, "no marker was written: another instance acts now")
            return False
        if self.now_ms() - read_ms > FRESH_MS:
            self._end(ahead, FAILED, "no marker was written: too much time had passed since the fresh read")
            return False
        self._markers.append(self.now_ms())
        came_to = write(self.ledger.admin, ahead, spec)
        if came_to.is_denied:
            rule = RULE_OF_REFUSAL[Refusal.NOT_AUTHORIZED]
            self._end(ahead, None, f"{came_to.detail}: {rule.what_to_do}", REFUSED, Refusal.NOT_AUTHORIZED)
            self._trip(f"the broker refuses markers: {came_to.detail}")
            return True
        self._end(ahead, came_to.result, came_to.detail, stable_after=came_to.stable_after)
        if came_to.result != VERIFIED:
            self._trip(f"the abort on {incident.topic}-{incident.partition} came to {came_to.result}")
        return True

    def _end(
        self,
        ahead: IncidentEvent,
        result: str | None,
        detail: str | None,
        decision: str = ABORT,
        refusal: str | None = None,
        stable_after: int | None = None,
    ) -> None:
        assert ahead.action is not None
        told: dict[str, Any] = {
            **ahead.action,
            "decision": decision,
            "refusal": refusal,
            "result": result,
            "detail": detail,
            "last_stable_offset_after": stable_after,
        }
        self.counts[f"aborts {result or f'refused ({refusal})'}"] += 1
        self.ledger.tell(updated(ahead, self.now_ms(), action=told))

    def _refuse(self, incident: IncidentEvent, refused: Refused) -> None:
        if RULE_OF_REFUSAL[refused.refusal].is_told:
            self._tell_once(incident, REFUSED, refused.refusal, refused.detail)

    def _tell_once(
        self, incident: IncidentEvent, decision: str, refusal: str | None, detail: str, spec: AbortSpec | None = None
    ) -> None:
        """A decision that comes to nothing: told the first time it is made for the incident."""
        said = self._told.setdefault(incident.incident_id, set())
        if not said and incident.action is not None:
            said.add(f"{incident.action['decision']} {incident.action['refusal']}")
        if f"{decision} {refusal}" in said:
            return
        said.add(f"{decision} {refusal}")
        self.counts[f"aborts {decision}" + (f" ({refusal})" if refusal is not None else "")] += 1
        told = action(decision, self.instance, self.now_ms(), refusal=refusal, detail=detail, spec=spec)
        self.ledger.tell(updated(incident, self.now_ms(), action=told))

    def _trip(self, why: str) -> None:
        """Stops everything until it has cooled down; what is not as it was believed to be comes in numbers."""
        self._tripped = (self.now_ms() + self.cooldown_ms, why)
        self.counts["circuit breaker opened"] += 1
        self.report(f"warning: the automatic abort stops for {self.cooldown_ms / 1000:.0f} s: {why}")

    def _is_left_open(self, incident: IncidentEvent) -> bool:
        """Announced, and what came of it was never told: by us before a restart, or by an instance that is gone."""
        done = incident.action
        if done is None or done["decision"] != ABORT or done["result"] is not None:
            return False
        is_ours: bool = done["by"] == self.instance
        return is_ours or self.now_ms() - done["at_ms"] > _ABANDONED_MS

    def _tell_what_became_of(self, incident: IncidentEvent) -> None:
        with self.ledger.admin.within(CONFIRM_BUDGET_MS):
            came_to = look_after(self.ledger.admin, incident, commit=False)
        if came_to.result == UNKNOWN:
            return  # it is asked again with the next batch
        detail = "read after a restart: the process ended between announcing the marker and telling what came of it"
        if came_to.result == STILL_OPEN:
            detail += "; the transaction is open, so the marker was not written"
        elif came_to.detail is not None:
            detail += f"; {came_to.detail}"
        self._end(incident, came_to.result, detail, stable_after=came_to.stable_after)
