"""A web hook and an Alertmanager target for tests, with a clock that a test moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.http_receiver import ReceivedRequest, Receiver
from support.incidents import an_event
from support.log_lines import LogLines
from txnwatch.push.push_file import WebhookTarget
from txnwatch.push.sender import Journal
from txnwatch.push.webhook import Webhook

START_MS = an_event().time_ms


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> Any:
        return self.now_ms


def ids_of(received: list[ReceivedRequest]) -> list[str]:
    """The ids of the events in requests of the structured mode."""
    return [json.loads(request.body)["id"] for request in received]


@contextmanager
def a_webhook(
    receiver: Receiver, directory: Path, clock: HandClock, log: LogLines | None = None, **values: Any
) -> Iterator[Webhook]:
    """A running web hook to the receiver; its position is in the directory."""
    target = WebhookTarget(name="pager", url=f"{receiver.url}/hook/secret-path", **values)
    lines = log if log is not None else LogLines()
    webhook = Webhook(target, Journal(directory / "position", lines.warning), clock, lines)
    webhook.start()
    try:
        yield webhook
    finally:
        receiver.gate.set()
        webhook.stop(1.0)
