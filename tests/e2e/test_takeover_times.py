"""How long nobody speaks after a fault of the speaker, many times, with two watchers without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.event_tail import EventTail
from support.takeover_times import SpeakingInstance, Takeovers, keep_takeovers
from support.topics import create_topic, unique
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

TIMES = 20
LIMIT_S = {"kill -9": 10.0, "pause": 10.0, "SIGTERM": 3.0}


@pytest.fixture
def takeovers(kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path) -> Iterator[Takeovers]:
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    topic = create_topic(cluster, unique("takeover"), partitions=TIMES)[0].topic
    events = create_topic(cluster, unique("takeover.events"), config={"cleanup.policy": "compact"})[0].topic
    with contextlib.closing(EventTail(kafka.bootstrap_servers, events)) as tail, contextlib.ExitStack() as ends:
        pair = [
            SpeakingInstance(kafka.bootstrap_servers, events, topic, str(tmp_path / name)) for name in ("one", "other")
        ]
        for one in pair:
            ends.callback(one.end)
        for one in pair:
            one.until_ready()
        yield Takeovers(cluster, tail, (pair[0], pair[1]), topic)


@pytest.mark.long
@pytest.mark.parametrize("fault", LIMIT_S)
def test_the_other_instance_tells_what_comes_right_after_a_fault(
    takeovers: Takeovers, fault: str, request: pytest.FixtureRequest
) -> None:
    seconds = [takeovers.after(fault, number) for number in range(TIMES)]
    assert list(takeovers.wrong()) == [], "each hang is told once"
    keep_takeovers(request.config.getoption("--takeover-results"), fault, seconds)
    assert max(seconds) <= LIMIT_S[fault], seconds
