"""All targets of a watch: made from the push file, with their threads and positions. They outlive a query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from txnwatch.http_client import Address
from txnwatch.push.alertmanager import AlertmanagerPeer
from txnwatch.push.push_file import HttpTarget, PushFile
from txnwatch.push.sender import Journal, journal_name
from txnwatch.push.webhook import Webhook
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.model.incident import IncidentEvent, Overwritten
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.telling.commands import Origin, as_read

_STOP_S = 0.5


class PushTargets:
    """The targets, before `start` without threads and files.

    Args:
        file: what names them.
        directory: where their positions are kept.
        now_ms: returns the time.
        log: receives their messages.

    Attributes:
        queues: what the ledger puts events into.
        may_send: whether this instance speaks; else the targets get nothing.
    """

    def __init__(self, file: PushFile, directory: Path, now_ms: Callable[[], TimestampMs], log: Log) -> None:
        self._file = file
        self._directory = directory
        self._now_ms = now_ms
        self._log = log
        self.queues: list[Webhook | AlertmanagerPeer] = []
        self.may_send: Callable[[], bool] = lambda: True

    def start(self) -> None:
        """Starts the threads, once."""
        if self.queues:
            return
        for webhook in self._file.webhook:
            (address,) = webhook.addresses
            self.queues.append(Webhook(webhook, self._journal(webhook, address), self._now_ms, self._log))
        for target in self._file.alertmanager:
            for address in target.addresses:
                journal = self._journal(target, address)
                self.queues.append(AlertmanagerPeer(target, address, journal, self._now_ms, self._log))
        for queue in self.queues:
            queue.may_send = self._may_send
            queue.start()

    def _may_send(self) -> bool:
        """By the ledger of now: a query that starts again has another one."""
        return self.may_send()

    def _journal(self, target: HttpTarget, address: Address) -> Journal:
        return Journal(self._directory / journal_name(target, address), self._log.warning)

    def seen(
        self, history: Iterable[IncidentEvent | Overwritten], origin: Origin
    ) -> Iterator[IncidentEvent | Overwritten]:
        """The history of the events topic as it is; the targets get the events that they missed before this start.

        Anybody who may write the topic can store any command and any owner there. So the command of an event is built
        anew, and its owner is that of our own table.
        """
        for record in history:
            if isinstance(record, IncidentEvent) and record.cluster_id == origin.cluster_id and not record.is_spent:
                event = named(as_read(origin, record), origin.owners, origin.cluster)
                for queue in self.queues:
                    queue.take_history(event)
            yield record

    def stop(self) -> None:
        """Ends the threads. All together have half a second for requests that are under way."""
        for queue in self.queues:
            queue.stop(0.0)
        deadline = time.monotonic() + _STOP_S
        for queue in self.queues:
            queue.stop(max(0.0, deadline - time.monotonic()))
