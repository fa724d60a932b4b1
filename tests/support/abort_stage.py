"""A cluster in memory with a hang in it, a ledger, and the automatic abort behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.fake_admin import FakeAdmin
from support.fake_lease import FakeLease
from support.ledger_world import LedgerWorld
from support.one_look import a_searcher
from txnwatch.sinks.abort.run_abort import ManualAbort, RunningAbort
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.incidents.by_hand import ManualTarget
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.client.clock import wall_clock_ms

AT_ONCE = AbortPolicy(after_ms=0, budget_per_hour=3, breaker_incidents=2)
COOLDOWN_MS = 600_000


def a_manual_abort(admin: FakeAdmin, target: ManualTarget, now_ms: Callable[[], int] = wall_clock_ms) -> ManualAbort:
    """An abort by hand on a cluster in memory."""
    return ManualAbort(
        target=target,
        admin=admin,
        search=lambda partition, is_wanted: a_searcher(admin, now_ms).search([partition], is_wanted),
        absence=lambda partition: None if partition in admin.partitions else "not there",
        origin=Origin("cluster", "a:1"),
        operator="somebody@host",
        now_ms=now_ms,
        pause=lambda: None,
    )


class AbortStage(LedgerWorld):
    """A world with the abort behind its ledger."""

    def __init__(self, mode: str = "on", policy: AbortPolicy = AT_ONCE, instance: str = "here") -> None:
        super().__init__()
        self.mode, self.policy, self.instance = mode, policy, instance
        self.lease = FakeLease()
        self.emitted: list[SpanCandidate] = []
        self.repeated: list[SpanCandidate] = []
        self.abort = self.an_abort()

    def an_abort(self) -> RunningAbort:
        return RunningAbort(
            self.mode,
            self.policy,
            COOLDOWN_MS,
            self.ledger,
            self.lease,
            self.instance,
            lambda: self.now_ms,
            self.reports,
            principal="User:watcher",
        )

    def restart(self) -> None:
        """The state has its checkpoint: it emits the hangs again."""
        super().restart()
        self.abort = self.an_abort()
        self.repeated = [one for one in self.emitted if self.is_open(one.producer_id)]

    def batch(self, *emitted: Any, after_ms: int = 500) -> None:
        self.now_ms += after_ms
        self.abort.recover()
        self.ledger.on_batch([*self.repeated, *emitted])
        self.repeated.clear()
        self.abort.on_batch()

    def hang_and_move_on(self, name: str = "checkout-1") -> int:
        """A hang of an aborted transaction whose id has since been initialised anew; returns the producer id."""
        candidate = self.hang(name)
        self.emitted.append(candidate)
        mode, self.abort.abort.mode = self.abort.abort.mode, "off"
        self.batch(candidate)
        self.abort.abort.mode = mode
        self.admin.init(name)
        return candidate.producer_id

    @property
    def actions(self) -> list[tuple[str, str | None, str | None]]:
        """Each once: what follows carries the last."""
        found: list[tuple[str, dict[str, Any]]] = []
        for event in self.topic.published:
            if event.action is not None and (event.incident_id, event.action) not in found:
                found.append((event.incident_id, event.action))
        return [(action.decision, action.refusal, action.result) for _, action in found]

    def is_open(self, producer_id: int) -> bool:
        row = self.admin.partitions[self.partition].producers.get(producer_id)
        return row is not None and row.txn_start_offset is not None

    def last(self) -> IncidentEvent:
        return self.topic.published[-1]
