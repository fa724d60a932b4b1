"""Answers that follow the schema and have values that no broker of Kafka sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.state.model.values import BrokerId
from txnwatch.streaming.admin.kafka_settings import SCAN_INTERVAL, ConfigOf, ScanInterval, topic_settings_in
from txnwatch.streaming.checks.preflight import topic_operations

pytestmark = pytest.mark.unit


class OneAnswer:
    """As much of a Cluster as these questions need: one broker, with one answer."""

    timeout_s = 1.0
    known = SimpleNamespace(brokers={BrokerId(1): "a:1"})

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def any_connection(self) -> Any:
        return SimpleNamespace(version=lambda *_, **__: 12)

    def call(self, *_: Any) -> Any:
        return self.answer

    def ask(self, requests: Any, _: float) -> Any:
        return dict.fromkeys(requests, self.answer)


def configs(of: str, name: str, value: str | None) -> Any:
    config = SimpleNamespace(name=name, value=value, config_source=5)
    kind = ConfigOf.BROKER if of.isdecimal() else ConfigOf.TOPIC
    result = SimpleNamespace(error_code=0, resource_type=kind, resource_name=of, configs=[config])
    return SimpleNamespace(results=[result])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10000", 10_000),
        ("2147483647", 2_147_483_647),
        ("2147483648", None),
        ("0", None),
        ("-5", None),
        ("9" * 5_000, None),
        ("\u0663", None),
        ("soon", None),
        (None, None),
    ],
)
def test_a_scan_interval_that_kafka_does_not_allow_is_not_used(value: str | None, expected: int | None) -> None:
    cluster: Any = OneAnswer(configs("1", SCAN_INTERVAL, value))
    assert ScanInterval().largest_ms(cluster, 0.0) == expected


@pytest.mark.parametrize(("value", "expected"), [("compact", {"orders": "compact"}), (None, {})])
def test_a_cleanup_policy_without_a_value_is_left_out(value: str | None, expected: dict[str, str]) -> None:
    found = topic_settings_in(configs("orders", "cleanup.policy", value), "cleanup.policy")
    assert {topic: setting.value for topic, setting in found.items()} == expected


def test_a_topic_without_a_name_is_left_out_of_the_rights() -> None:
    topics = [SimpleNamespace(name=name, error_code=0, authorized_operations={3}) for name in (None, "orders")]
    cluster: Any = OneAnswer(SimpleNamespace(topics=topics))
    assert topic_operations(cluster) == {"orders": frozenset({3})}
