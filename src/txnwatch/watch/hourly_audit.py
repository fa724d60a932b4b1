"""Repeats the cheap checks of the audit while a watch runs: those that do not read the coordinators' log.

Apart: it asks with connections of its own, in a thread of its own, so a broker that does not answer delays no batch.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from txnwatch.sinks.delivery.outbox import WorkerThread
from txnwatch.state.audit.audit_table import ExposureSeverity
from txnwatch.state.audit.auditing import audit
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ports import Log
from txnwatch.state.text import Said
from txnwatch.streaming.audit.gathering import gather
from txnwatch.streaming.client.cluster import Cluster

FIRST_MS: Final = 60_000.0  # after the watch is ready: the start has the brokers for itself
AGAIN_MS: Final = 3_600_000.0
_STOP_S = 1.0


class HourlyAudit:
    """The thread; `take` gets the number of findings of each severity."""

    def __init__(
        self, connect: Callable[[], Cluster], log: Log, take: Callable[[Mapping[ExposureSeverity, int]], None]
    ) -> None:
        self._connect = connect
        self._log = log
        self._take = take
        self._said: Said[str] = Said()
        self._thread: WorkerThread | None = None
        self._waits = True

    def start(self) -> None:
        """Starts the thread, unless it runs."""
        if self._thread is None:
            self._thread = WorkerThread("the audit", self._work, self._log)
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread; leaves it behind if a broker does not answer now."""
        if self._thread is not None:
            self._thread.stop(_STOP_S)

    def _work(self) -> float:
        if self._waits:
            self._waits = False
            return FIRST_MS
        self.look()
        return AGAIN_MS

    def look(self) -> None:
        """Audits once. If no broker answers, the numbers of before stay."""
        try:
            with contextlib.closing(self._connect()) as cluster:
                result = audit(gather(cluster, None))
        except TxnwatchError:  # the watch itself says that the brokers are away
            return
        counts = Counter(one.severity for one in result.exposures)
        self._take({severity: counts[severity] for severity in ExposureSeverity})
        found = ", ".join(f"{counts[severity]} {severity}" for severity in ExposureSeverity if counts[severity])
        if self._said.is_new("findings", found):
            self._log.info(f"audit: {found or 'no finding'}; `txnwatch audit` shows what exposes this cluster to hangs")
