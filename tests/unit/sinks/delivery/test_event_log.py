"""How the events topic is read back, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from txnwatch.sinks.delivery import event_log
from txnwatch.state.model.errors import BrokerError

TRANSPORT = -195  # librdkafka's code for a connection that cannot be made, or that was closed


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


REASONS = {
    "none": (None, True),
    "it was closed before a request": ("b:9092/bootstrap: Send failed: Broken pipe (after 0ms in state UP)", True),
    "it was reset": ("b:9092/bootstrap: Receive failed: Connection reset by peer (after 3ms in state UP)", True),
    "it was closed after a request": ("b:9092/bootstrap: Disconnected (after 1ms in state UP)", True),
    "nobody listens": ("b:9092/bootstrap: Connect to ipv4#b failed: Connection refused (in state CONNECT)", False),
}


@pytest.mark.parametrize(("reason", "is_doubted"), REASONS.values(), ids=REASONS.keys())
def test_a_connection_that_the_listener_closes_has_the_question_of_its_protocol(
    monkeypatch: pytest.MonkeyPatch,
    reason: str | None,
    *,
    is_doubted: bool,
) -> None:
    class Consumer:
        def __init__(self, config: dict[str, Any]) -> None:
            self._on_error = config["error_cb"]

        def list_topics(self, *_: object, **__: float) -> None:
            raise KafkaException(KafkaError(TRANSPORT))

        def poll(self, _: float) -> None:
            if reason is not None:
                self._on_error(KafkaError(TRANSPORT, reason))

        def close(self) -> None: ...

    monkeypatch.setattr(event_log, "Consumer", Consumer)
    with pytest.raises(BrokerError, match=reason and reason.split("(")[0]) as raised:
        event_log.EventLog({}, "txnwatch.events")
    assert ("security.protocol=PLAINTEXT" in str(raised.value)) is is_doubted
