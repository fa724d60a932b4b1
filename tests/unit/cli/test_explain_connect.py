"""The group of Connect's workers is known, and what a hang on Connect's internal topics stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.cli.compose import Question
from txnwatch.cli.explain_connect import NOT_CHECKED, with_connect
from txnwatch.cli.explain_names import NO_FINDING, of_group
from txnwatch.cli.explain_topics import of_topic
from txnwatch.cli.explanation import ALL_CLEAR, Explanation
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.admin.groups import KnownGroup

CUSTOM = ("connect-configs", "connect-offsets", "connect-status")
WORKERS = KnownGroup("dwh", 1, "Stable", "connect")
SETTINGS = dict(zip(CUSTOM, ("config.storage.topic", "offset.storage.topic", "status.storage.topic"), strict=True))
STOPS = "that start now load no connectors"


def a_question(admin: FakeAdmin, *topics: str) -> Question:
    for topic in topics:
        admin.create_topic(topic)
    shown = {name: SimpleNamespace(partitions={0: None}, is_hidden=False) for name in topics}
    cluster: Any = SimpleNamespace(known=SimpleNamespace(topics=shown))
    return Question(cluster, Origin("cluster", "a:1"), a_searcher(admin, lambda: admin.now_ms))


def test_workers_whose_topics_are_not_known_are_not_all_clear() -> None:
    question = a_question(FakeAdmin(), "orders")
    explained = of_group(question, WORKERS)
    assert explained.state == NOT_CHECKED
    assert explained.text[0].startswith("dwh: the group of Kafka Connect's workers (group.id of their configuration)")
    assert list(question.missing) == ["the internal topics of Connect group dwh"]


def test_workers_whose_topics_have_nothing_open_are_all_clear() -> None:
    question = a_question(FakeAdmin(), *CUSTOM)
    explained = of_group(question, WORKERS)
    assert (explained.state, question.missing) == (ALL_CLEAR, {})
    assert "connect-offsets, connect-configs and connect-status" in explained.text[1]
    assert explained.text[2] == "All clear: no transaction is open on these topics."


@pytest.mark.parametrize("topic", CUSTOM)
def test_a_hang_on_an_internal_topic_says_which_workers_it_stops(topic: str) -> None:
    admin = FakeAdmin()
    question = a_question(admin, *CUSTOM)
    admin.begin("connect-cluster-dwh", TopicPartition(topic, 0))
    admin.lose_markers("connect-cluster-dwh", commit=False)
    of_workers, of_its_topic = of_group(question, WORKERS), of_topic(question, topic)
    assert of_its_topic is not None
    for explained in (of_workers, of_its_topic):
        text = " ".join(explained.text)
        assert explained.state == "hanging"
        assert f"By its name, {topic} is an internal topic of Kafka Connect ({SETTINGS[topic]} of " in text
        setting = "isolation.level=read_committed" if topic == CUSTOM[2] else "exactly.once.source.support"
        assert f"Workers with {setting} {STOPS}" in text
    other = of_topic(question, CUSTOM[0] if topic != CUSTOM[0] else CUSTOM[1])
    assert other is not None
    assert (other.state, STOPS in " ".join(other.text)) == (ALL_CLEAR, False)


@pytest.mark.parametrize(("ends", "is_told"), [("yes", False), ("unknown", True), ("no", True)])
def test_a_transaction_that_ends_by_itself_is_usual(ends: str, *, is_told: bool) -> None:
    question = a_question(FakeAdmin(), *CUSTOM)
    explained = with_connect(question, Explanation("connect-configs-0", "open", ends_by_itself=ends), [CUSTOM[0]])
    assert (STOPS in " ".join(explained.text)) is is_told


def test_a_topic_of_others_is_told_as_before() -> None:
    explained = Explanation("orders-0", "hanging")
    assert with_connect(a_question(FakeAdmin(), *CUSTOM, "orders"), explained, ["orders"]) == explained
    assert NOT_CHECKED in NO_FINDING
