"""What every target of a push has: a thread that outlives the query, and the requests that it sends."""

from __future__ import annotations

import threading
from collections.abc import Callable

from txnwatch.push.sender import Sender
from txnwatch.sinks.delivery.background import WorkerThread
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import TimestampMs


class TargetThread:
    """The part of a MirrorQueue that does not depend on the kind of the target. A target has no view of incidents.

    `work` is that of WorkerThread.
    """

    def __init__(self, sender: Sender, work: Callable[[], float], log: Log) -> None:
        self._sender = sender
        self._lock = threading.Lock()
        self._thread = WorkerThread(sender.name, work, log)

    @property
    def name(self) -> str:
        """See MirrorQueue."""
        return self._sender.name

    @property
    def failures(self) -> int:
        """See MirrorQueue."""
        return self._sender.failures

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ends the thread; after the timeout, a request that is under way is left behind. No alert is ended."""
        self._thread.stop(timeout_s)

    def deliver(self, _: TimestampMs) -> None:
        """The thread has been woken by `put`."""

    def deliver_last(self, _: TimestampMs) -> None:
        """The thread outlives the query, and the position outlives the process."""

    def has_lost_everything(self) -> bool:
        """A target that was restarted gets the next events or renewals."""
        return False

    def forget(self, has_ended: Callable[[str], bool], now_ms: TimestampMs) -> None:
        """A web hook keeps no incidents, and an alert that nobody renews ends by itself."""
