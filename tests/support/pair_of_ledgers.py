"""Two instances of the ledger on one events topic."""

from __future__ import annotations

from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.model.findings import Finding


class Pair:
    """Two instances; the first one speaks at the beginning. The speaker `each` is both of them."""

    def __init__(self) -> None:
        self.world = LedgerWorld()
        self.log = SharedLog()
        self.speaker = "one"
        self.one, self.two = (self.an_instance(name) for name in ("one", "two"))

    def an_instance(self, name: str) -> RunningLedger:
        return self.world.another(self.log, may_speak=lambda: self.speaker in {name, "each"}, name=name)

    def both(self, *emitted: Finding, after_ms: int = 500) -> None:
        self.step(self.one, *emitted, after_ms=after_ms)
        self.step(self.two, *emitted, after_ms=0)

    def step(self, ledger: RunningLedger, *emitted: Finding, after_ms: int = 500) -> None:
        self.world.now_ms += after_ms
        ledger.on_batch(emitted)

    def published(self) -> list[tuple[int, str]]:
        return [(event.sequence, event.status) for event in self.log.published]
