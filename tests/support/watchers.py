"""Two watchers of one cluster, of which one knows the outcome of a hang and the other does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from support.abort_stage import AT_ONCE
from support.fake_groups import FakeGroups
from support.fake_lease import FakeLease
from support.ledger_world import LedgerWorld
from support.log_lines import LogLines
from support.shared_log import SharedLog
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.incident import IncidentEvent


@dataclass
class Watchers:
    """`knows` has found the outcome before the id went on; `later` began after that."""

    world: LedgerWorld
    log: SharedLog
    knows: RunningLedger
    later: RunningLedger
    named: SpanCandidate
    nameless: SpanCandidate

    def batch(self, *ledgers: RunningLedger, after_ms: int = 500, emitted: tuple[Finding, ...] = ()) -> None:
        self.world.now_ms += after_ms
        for ledger in ledgers:
            ledger.on_batch(emitted)

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(event.status, event.expected_outcome) for event in self.log.published]

    @property
    def last(self) -> IncidentEvent:
        return self.log.records[-1]

    def outcomes(self) -> list[str]:
        return [str(event.expected_outcome) for event in self.log.published]

    @classmethod
    def of_one_hang(cls) -> Self:
        """Both have found the hang, and the topic has the outcome."""
        world, log = LedgerWorld(), SharedLog()
        named = world.hang()
        knows = world.another(log, groups=FakeGroups())
        knows.on_batch([named])
        world.admin.init("checkout-1")
        nameless = world.candidate(named.producer_id)
        later = world.another(log, groups=FakeGroups())
        later.on_batch([nameless])
        found = cls(world, log, knows, later, named, nameless)
        assert found.outcomes() == ["abort"], "the second has found the hang and not its outcome, and is silent"
        (known,) = later.open_incidents
        assert known.expected_outcome == "unknown"
        return found

    def abort_of(
        self, ledger: RunningLedger, name: str, reports: LogLines | None = None
    ) -> tuple[RunningAbort, FakeLease]:
        """The automatic abort of one of them, and its lease."""
        lease = FakeLease()
        log = LogLines() if reports is None else reports
        return RunningAbort("on", AT_ONCE, 0, ledger, lease, name, lambda: self.world.now_ms, log), lease

    def many_more_are_hidden(self) -> None:
        """Both see it at their next look."""
        self.world.admin.plain(self.world.partition, 500)
