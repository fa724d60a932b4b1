"""A regular expression for topics that matches none is said before the watch starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from support.log_lines import LogLines
from txnwatch.streaming.checks import preflight
from txnwatch.streaming.checks.preflight import CheckedCluster, check_cluster
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.source.options import parse_options

MATCHES_NONE = "warning: --topics 'order' matches no topic that the brokers show to this user"
LATER = "the whole name must match, and a topic that is created later may"


def checked(log: LogLines, topics: str, census: str, *names: str) -> CheckedCluster:
    shown = Metadata("c", {1: "one"}, {name: TopicInfo(name, "id", {0: PartitionInfo(1, 0)}) for name in names})
    cluster: Any = SimpleNamespace(refresh=lambda: shown)
    settings = {"kafka.bootstrap.servers": "a:1", "subscribePattern": topics, "censusPattern": census}
    with (
        mock.patch.object(preflight, "choose_view"),
        mock.patch.object(preflight, "refused_read", return_value=[]),
    ):
        return check_cluster(cluster, parse_options(settings), "auto", log)


@pytest.mark.parametrize(
    ("census", "names", "said"),
    [
        (".*", ("orders", "payments"), " (orders, payments): 2 are watched by census only, which finds a hang later"),
        ("x", ("orders",), " (orders): nothing is watched"),
        (".*", (), " (they show none): nothing is watched"),
    ],
    ids=["by census", "not at all", "no topics"],
)
def test_topics_that_match_none_are_a_warning(census: str, names: tuple[str, ...], said: str) -> None:
    log = LogLines()
    checked(log, "order", census, *names)
    assert log == [f"{MATCHES_NONE}{said}; {LATER}"]


def test_topics_that_match_one_are_no_warning() -> None:
    log = LogLines()
    assert checked(log, "orders", "x", "orders", "payments").topics
    assert log == []
