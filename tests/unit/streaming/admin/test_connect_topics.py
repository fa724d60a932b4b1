"""The internal topics of Kafka Connect are known by their names, and by the group of its workers."""

from __future__ import annotations

import pytest

from txnwatch.state.model.incident import ConnectSetting, ConnectUse
from txnwatch.streaming.admin.connect_topics import ConnectTopics, connect_topics, connect_uses, topics_of_workers

CUSTOM = ("connect-configs", "connect-offsets", "connect-status")

SETS = {
    "by custom": (CUSTOM, [ConnectTopics("connect-offsets", "connect-configs", "connect-status")]),
    "one is missing": (CUSTOM[:2], []),
    "of MirrorMaker 2": (
        ("mm2-offsets.eu.internal", "mm2-configs.eu.internal", "mm2-status.eu.internal"),
        [ConnectTopics("mm2-offsets.eu.internal", "mm2-configs.eu.internal", "mm2-status.eu.internal")],
    ),
    "with storage": (
        ("dwh-offset-storage", "dwh-config-storage", "dwh-status-storage"),
        [ConnectTopics("dwh-offset-storage", "dwh-config-storage", "dwh-status-storage")],
    ),
    "of two clusters that are mixed": (("a-offsets", "a-configs", "b-status", "__consumer_offsets", "orders"), []),
}


@pytest.mark.parametrize(("names", "sets"), SETS.values(), ids=SETS.keys())
def test_the_topics_are_known_by_their_names(names: tuple[str, ...], sets: list[ConnectTopics]) -> None:
    assert connect_topics(names) == sets


def test_the_topics_of_a_group_are_those_with_its_name_or_those_by_custom_or_the_only_ones() -> None:
    own = ("dwh-configs", "dwh-offsets", "dwh-status")
    other = ("eu-configs", "eu-offsets", "eu-status")
    for names, head in (((*own, *CUSTOM), "dwh"), ((*other, *CUSTOM), "connect"), (other, "eu")):
        found = topics_of_workers("dwh", names)
        assert found is not None
        assert found.head == head
    assert topics_of_workers("us", (*own, *other)) is None


def test_what_connect_keeps_in_a_topic_is_known_by_three_names_or_by_the_group_of_workers() -> None:
    def use(topic: str, setting: ConnectSetting, group: str | None = None) -> dict[str, ConnectUse]:
        return {topic: ConnectUse(topic=topic, setting=setting, group_id=group)}

    known = use("connect-offsets", ConnectSetting.OFFSETS)
    assert connect_uses(["connect-offsets", "orders"], CUSTOM) == known
    assert connect_uses(["connect-offsets"], CUSTOM[:2]) == {}  # one name proves nothing
    assert connect_uses(["order-status"], ["order-status"], ["dwh"]) == {}
    assert connect_uses(["dwh_config"], [], ["dwh"]) == use("dwh_config", ConnectSetting.CONFIGS, "dwh")
    assert connect_uses(["connect-status"], CUSTOM, ["dwh"]) == use("connect-status", ConnectSetting.STATUS, "dwh")
    own = ("dwh-configs", "dwh-offsets", "dwh-status")
    both = connect_uses(["connect-status"], (*CUSTOM, *own), ["dwh"])
    assert both == use("connect-status", ConnectSetting.STATUS)
