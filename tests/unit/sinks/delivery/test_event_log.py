"""How the events topic is read back, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.sinks.delivery import event_log


def test_an_open_transaction_on_the_topic_hides_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class Consumer:
        def __init__(self, config: dict[str, Any]) -> None:
            given.update(config)

        def list_topics(self, topic: str, **_: float) -> SimpleNamespace:
            return SimpleNamespace(cluster_id="cluster", topics={topic: SimpleNamespace(error=None, partitions=[0])})

        def assign(self, _: object) -> None: ...

    monkeypatch.setattr(event_log, "Consumer", Consumer)
    event_log.EventLog({}, "txnwatch.events")
    assert given["isolation.level"] == "read_uncommitted"
