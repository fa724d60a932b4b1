"""How long nobody speaks after a fault of the speaker, many times: two whole watchers, and two without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.event_tail import EventTail
from support.takeover_times import Instance, SpeakingInstance, Takeovers, WholeWatcher, keep_takeovers
from support.topics import create_topic, unique
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

TIMES, TIMES_OF_WHOLE = 20, 5
LIMIT_S = {"kill -9": 10.0, "pause": 10.0, "SIGTERM": 3.0}
DETECTED_S = 2.0  # two micro-batches and a fresh read, on a busy machine


Begin = Callable[[str, str, str, str], Instance]


@contextlib.contextmanager
def takeovers(kafka: EmbeddedKafka, cluster: Cluster, directory: Path, begin: Begin) -> Iterator[Takeovers]:
    """Two watchers of a new topic."""
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    topic = create_topic(cluster, unique("takeover"), partitions=TIMES)[0].topic
    events = create_topic(cluster, unique("takeover.events"), config={"cleanup.policy": "compact"})[0].topic
    with contextlib.closing(EventTail(kafka.bootstrap_servers, events)) as tail, contextlib.ExitStack() as ends:
        pair = [begin(kafka.bootstrap_servers, events, topic, str(directory / name)) for name in ("one", "other")]
        for one in pair:
            ends.callback(one.end)
        for one in pair:
            one.until_ready()
        yield Takeovers(cluster, tail, (pair[0], pair[1]), topic)


@pytest.mark.long
@pytest.mark.parametrize("fault", LIMIT_S)
@pytest.mark.parametrize("begin", [SpeakingInstance, WholeWatcher])
def test_the_other_instance_tells_what_comes_right_after_a_fault(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest, begin: Begin, fault: str
) -> None:
    is_whole = begin is WholeWatcher
    with takeovers(kafka, cluster, tmp_path, begin) as pair:
        seconds = [pair.after(fault, number) for number in range(TIMES_OF_WHOLE if is_whole else TIMES)]
        assert list(pair.wrong()) == [], "each hang is told once"
    row = f"{fault}, whole watchers" if is_whole else fault
    keep_takeovers(request.config.getoption("--takeover-results"), row, seconds)
    assert max(seconds) <= LIMIT_S[fault] + (DETECTED_S if is_whole else 0), seconds
