"""Carries out the plans of the automatic abort, with the ledger's connections and the lease."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any

from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.case import AbortPolicy
from txnwatch.state.incidents.remediation import AutoAbort
from txnwatch.state.incidents.wanted import FreshReads, HoldLease, LeaseAnswer, Say, Wanted, Way
from txnwatch.state.model.ports import Lease, Log
from txnwatch.state.model.values import DurationMs, TimestampMs

_LOG = logging.getLogger("txnwatch.abort")


@dataclass(slots=True)
class RunningAbort:
    """The automatic abort of one watch.

    Attributes:
        lease: None if the mode is off.
        log: receives messages for the operator that are not events.
        abort: what decides.
    """

    mode: InitVar[str]
    policy: InitVar[AbortPolicy]
    cooldown_ms: InitVar[DurationMs]
    ledger: RunningLedger
    lease: Lease | None
    instance: InitVar[str]
    now_ms: Callable[[], TimestampMs]
    log: Log = _LOG
    abort: AutoAbort = field(init=False)
    _reads: FreshReads = field(init=False)

    def __post_init__(self, mode: str, policy: AbortPolicy, cooldown_ms: DurationMs, instance: str) -> None:
        self.abort = AutoAbort(mode, policy, cooldown_ms, self.ledger.ledger, instance)
        ways: dict[type[Wanted[Any]], Way] = {**self.ledger.ways(), HoldLease: self._held, Say: self._say}
        self._reads = FreshReads(self.ledger.admin, self.now_ms, ways)

    @property
    def counts(self) -> Counter[str]:
        """Decisions, for the metrics."""
        return self.abort.counts

    def recover(self) -> None:
        """Publishes the results of markers that were announced without one; before each batch of the ledger."""
        self._reads.run(self.abort.recover())

    def on_batch(self) -> None:
        """Decides about every open incident that is due; after each batch of the ledger."""
        self._reads.run(self.abort.on_batch())

    def close(self) -> None:
        """Releases the lease."""
        if self.lease is not None:
            self.lease.close()

    def _held(self, wanted: HoldLease) -> LeaseAnswer:
        if self.lease is None:
            return LeaseAnswer(is_held=False, problem=None)
        is_held = self.lease.is_held_now() if wanted.is_certain else self.lease.is_held()
        return LeaseAnswer(is_held, self.lease.problem)

    def _say(self, wanted: Say) -> None:
        if wanted.is_warning:
            self.log.warning(wanted.text)
        else:
            self.log.info(wanted.text)
