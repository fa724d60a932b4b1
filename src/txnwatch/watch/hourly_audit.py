"""Repeats the cheap checks of the audit while a watch runs: those that do not read the coordinators' log.

Apart: it asks with connections of its own, in a thread of its own, so a broker that does not answer delays no batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from txnwatch.sinks.delivery.outbox import WorkerThread
from txnwatch.state.audit.audit_facts import NotAudited
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.exposure_rows import PeriodicAudit, row_of_exposure, summary
from txnwatch.state.audit.exposures import explained, of_the_week, unexplained, unexplained_line
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import OwnerLookup
from txnwatch.state.model.ports import Log
from txnwatch.state.text import Grantee, Said
from txnwatch.streaming.audit.gathering import gather
from txnwatch.streaming.client.cluster import Cluster

FIRST_MS: Final = 60_000.0  # after the watch is ready: the start has the brokers for itself
AGAIN_MS: Final = 3_600_000.0
_STOP_S = 1.0
_OF_THE_LOG: Final = [check.name for check in CHECKS if check.reads_log]
_NOT_REPEATED: Final = NotAudited(
    f"{len(_OF_THE_LOG)} checks: {', '.join(_OF_THE_LOG)}",
    "a watch does not read the coordinators' log for them; `txnwatch audit` does",
)


class HourlyAudit:
    """The thread; `take` gets what it has found.

    Attributes:
        events: reads the events topic.
        owners: the table of owners, as it is when it asks.
    """

    def __init__(
        self,
        connect: Callable[[], Cluster],
        events: Callable[[], Iterable[object]],
        owners: Callable[[], OwnerLookup],
        admin: Grantee,
        log: Log,
        take: Callable[[PeriodicAudit], None],
    ) -> None:
        self._connect, self._events, self._owners = connect, events, owners
        self._admin = admin
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
        """Audits once. If no broker answers, what was found before stays."""
        try:
            with contextlib.closing(self._connect()) as cluster:
                facts = gather(cluster, None)
        except TxnwatchError:  # the watch itself says that the brokers are away
            return
        result = audit(facts)
        missing = [_NOT_REPEATED, *result.missing]
        try:
            events = (event for event in self._events() if isinstance(event, IncidentEvent))
            incidents = of_the_week(events, facts.now_ms)
            fitting = tuple(explained(exposure, incidents) for exposure in result.exposures)
            left = unexplained_line(unexplained(result.exposures, incidents))
        except TxnwatchError as exc:
            fitting = None
            left = None
            missing.append(NotAudited("incidents of the last week", str(exc)))
        owners = self._owners()
        rows = tuple(
            row_of_exposure(exposure, facts, self._admin, owners, fitting[at] if fitting is not None else None)
            for at, exposure in enumerate(result.exposures)
        )
        self._take(PeriodicAudit(facts.now_ms, result.exposures, rows, fitting, left, tuple(missing)))
        findings = summary(result.exposures, has_all=False)
        if self._said.is_new("findings", findings):
            self._log.info(f"audit: {findings}; `txnwatch audit` shows what exposes this cluster to hangs")
