"""Two instances of the ledger on one events topic."""

from __future__ import annotations

from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.speaking import SILENT, WHOLE, SpeakerRole
from txnwatch.state.model.findings import Finding


class Pair:
    """Two instances; the first one speaks at the beginning. The speaker `each` is both: the coordinator is away.

    The speaker `each of its topics` is both, too: each has a lease of its own. `is_only_teller` says whether the second
    lease, which they share, answers.
    """

    def __init__(self) -> None:
        self.world = LedgerWorld()
        self.log = SharedLog()
        self.speaker, self.tenure, self.is_only_teller = "one", 0, True
        self.one, self.two = (self.an_instance(name) for name in ("one", "two"))

    def an_instance(self, name: str) -> RunningLedger:
        return self.world.another(self.log, role=lambda: self._role_of(name), name=name)

    def _role_of(self, name: str) -> SpeakerRole:
        if self.speaker == "each":
            return WHOLE._replace(is_alone=False, is_only_teller=False)
        if self.speaker == "each of its topics":
            return WHOLE._replace(is_only_teller=self.is_only_teller)
        return WHOLE._replace(tenure=self.tenure) if self.speaker == name else SILENT

    def both(self, *emitted: Finding, after_ms: int = 500) -> None:
        self.step(self.one, *emitted, after_ms=after_ms)
        self.step(self.two, *emitted, after_ms=0)

    def step(self, ledger: RunningLedger, *emitted: Finding, after_ms: int = 500) -> None:
        self.world.now_ms += after_ms
        ledger.on_batch(emitted)

    def published(self) -> list[tuple[int, str]]:
        return [(event.sequence, event.status) for event in self.log.published]
