"""Brokers that list the topics and then do not answer are an error that a later attempt may solve."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from txnwatch.sinks.delivery import events_topic
from txnwatch.state.model.errors import BrokerError


class SilentAfterTheList:
    """An admin client that gets the list of topics, and no further answer."""

    topics: Sequence[str] = ()

    def __init__(self, _: object) -> None:
        pass

    def list_topics(self, timeout: float) -> Any:
        assert timeout > 0
        return SimpleNamespace(
            topics=dict.fromkeys(self.topics, SimpleNamespace(partitions={0: None})), brokers={1: None}
        )

    def create_topics(self, topics: Sequence[Any], **_: object) -> dict[str, Future[None]]:
        return {topic.topic: Future() for topic in topics}

    def describe_configs(self, resources: Sequence[Any]) -> dict[Any, Future[None]]:
        return {resource: Future() for resource in resources}


@pytest.mark.parametrize("topics", [(), ("events",)], ids=["is created", "exists"])
def test_brokers_that_no_longer_answer_are_reported_as_such(
    monkeypatch: pytest.MonkeyPatch, topics: Sequence[str]
) -> None:
    monkeypatch.setattr(SilentAfterTheList, "topics", topics)
    monkeypatch.setattr(events_topic, "AdminClient", SilentAfterTheList)
    with pytest.raises(BrokerError, match="events topic 'events': no answer of the brokers within 0 s"):
        events_topic.ensure_topic({}, "events", timeout_s=0.01)
