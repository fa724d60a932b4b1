"""The automatic abort of whole processes: one that is killed on the way to its marker, one that is stopped, and two."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.event_tail import EventTail
from support.gate import OFFSET_COMMIT, WRITE_TXN_MARKERS, Gate, GatedKafka
from support.kafka_faults import late_write_after_abort
from support.raw_log import read_log
from support.servers import Clusters, connect, create_coordinators
from support.stop_times import StopTimes
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import READY_S, RunningWatch
from txnwatch.state.incidents.speaking import SESSION_MS
from txnwatch.state.model.incident import ActionResult, Decision, IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

IN_TIME_S, PAUSE_S = 60.0, 3.0
AUTO = ("--auto-abort", "on", "--abort-after-ms", "0")
ANNOUNCED, VERIFIED, NOT_WRITTEN = ("abort", None), ("abort", "verified"), ("abort", "still_open")


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with Gate() as found:
        yield found


@pytest.fixture(scope="module")
def gated(clusters: Clusters, gate: Gate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp("gated")
    kafka = clusters.start("gated", lambda: GatedKafka(directory, gate))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    create_coordinators(kafka)
    yield kafka
    clusters.end("gated")


@pytest.fixture
def cluster(gated: EmbeddedKafka) -> Iterator[Cluster]:
    with contextlib.closing(connect(gated)) as found:
        yield found


@pytest.fixture
def partitions(cluster: Cluster) -> list[TopicPartition]:
    return create_topic(cluster, unique("processes"), partitions=4)


@pytest.fixture
def tail(gated: EmbeddedKafka, cluster: Cluster) -> Iterator[EventTail]:
    (events,) = create_topic(cluster, unique("processes.events"), config={"cleanup.policy": "compact"})
    with contextlib.closing(EventTail(gated.bootstrap_servers, events.topic)) as found:
        yield found


def a_watch(gate: Gate, tail: EventTail, partition: TopicPartition, checkpoint: Path, *more: str) -> RunningWatch:
    flags = ("--topics", partition.topic, "--events-topic", tail.topic, *AUTO, *more)
    return RunningWatch(gate.address, checkpoint, *flags)


def hang(cluster: Cluster, tail: EventTail, partition: TopicPartition) -> None:
    """A late write whose client starts anew once the incident is open: then nothing prevents the abort."""
    producer = late_write_after_abort(cluster, unique("zombie"), partition)
    eventually(lambda: life(tail, partition), IN_TIME_S, "the incident")
    producer.init()


def life(tail: EventTail, partition: TopicPartition) -> list[IncidentEvent]:
    """The published events of a partition, as a consumer sees them that keeps `ce_id`."""
    seen: dict[str, IncidentEvent] = {}
    for published in tail.published:
        if (published.event.topic, published.event.partition) == partition:
            seen.setdefault(published.event.event_id, published.event)
    return list(seen.values())


def actions(tail: EventTail, partition: TopicPartition) -> list[tuple[str, str | None]]:
    """The aborts that were decided on, with their results.

    It omits one that failed before its marker: two processes may have published the next event at the same moment.
    """
    published = [event.action for event in life(tail, partition) if event.action is not None]
    given_up = {one.at_ms for one in published if one.result == ActionResult.FAILED}
    found = [one for one in published if one.at_ms not in given_up]
    made = {(one.at_ms, one.result): (one.decision, one.result) for one in found}
    return [action for action in made.values() if action[0] != Decision.REFUSED]


def whole_life(tail: EventTail, partition: TopicPartition) -> list[IncidentEvent]:
    """The life of the one incident of a partition, once it has ended."""

    def is_over() -> bool:
        published = life(tail, partition)
        return bool(published) and published[-1].status == "resolved"

    eventually(is_over, IN_TIME_S, f"the end on {partition}")
    published = life(tail, partition)
    assert [event.sequence for event in published] == list(range(1, len(published) + 1))
    assert {event.incident_id for event in published} == {published[0].incident_id}
    assert [event.status for event in published] == ["opened", *["updated"] * (len(published) - 2), "resolved"]
    return published


def markers(cluster: Cluster, partition: TopicPartition) -> int:
    """How many there are besides that of the coordinator, which came before the late write."""
    return len([batch for batch in read_log(cluster, partition) if batch.marker is not None]) - 1


@pytest.mark.long
def test_a_process_killed_before_and_after_its_marker_publishes_the_result_each_time(
    gate: Gate, cluster: Cluster, tail: EventTail, partitions: list[TopicPartition], tmp_path: Path
) -> None:
    partition = partitions[0]
    with a_watch(gate, tail, partition, tmp_path) as watch:

        def dies() -> bool:
            watch.kill()
            return False

        watch.until_ready()
        is_killed = gate.at_request(WRITE_TXN_MARKERS, dies)
        hang(cluster, tail, partition)
        assert is_killed.wait(IN_TIME_S), actions(tail, partition)
        eventually(lambda: actions(tail, partition) == [ANNOUNCED], IN_TIME_S, "the announcement, and nothing else")
        assert markers(cluster, partition) == 0

        is_killed = gate.at_answer(WRITE_TXN_MARKERS, dies)
        watch.start()
        assert is_killed.wait(READY_S), actions(tail, partition)
        again = [ANNOUNCED, NOT_WRITTEN, ANNOUNCED]
        eventually(lambda: actions(tail, partition) == again, IN_TIME_S, f"{again} in {actions(tail, partition)}")
        assert markers(cluster, partition) == 1, "written, and nobody knows"
        assert life(tail, partition)[-1].is_open

        watch.start()
        published = whole_life(tail, partition)
        assert actions(tail, partition) == [*again, VERIFIED]
        assert published[-1].resolution is not None
        assert (published[-1].resolution.how, published[-1].resolution.by) == ("aborted", "administrator")
        watch.stop()
        times_ready = sum("ready: " in line for line in watch.lines)
        watch.start()
        watch.until("ready: ", times=times_ready + 1)
        time.sleep(PAUSE_S)
        assert life(tail, partition) == published, "published once"
        assert markers(cluster, partition) == 1


@pytest.mark.long
@pytest.mark.parametrize("arrives", [True, False])
def test_a_stop_while_a_marker_is_under_way_is_quick_and_the_next_start_publishes_the_result(
    gate: Gate,
    cluster: Cluster,
    tail: EventTail,
    partitions: list[TopicPartition],
    stop_times: StopTimes,
    tmp_path: Path,
    *,
    arrives: bool,
) -> None:
    """The broker gets the request after the process has ended, or never."""
    partition, has_ended = partitions[0], threading.Event()
    is_here = threading.Event()

    def passes() -> bool:
        is_here.set()
        return has_ended.wait(IN_TIME_S) and arrives

    with a_watch(gate, tail, partition, tmp_path) as watch:
        watch.until_ready()
        is_passed = gate.at_request(WRITE_TXN_MARKERS, passes)
        hang(cluster, tail, partition)
        assert is_here.wait(IN_TIME_S), actions(tail, partition)
        ending = "arrives after the stop" if arrives else "never arrives"
        stop_times.stop(watch, f"an abort is under way, and its marker {ending}")
        has_ended.set()
        assert is_passed.wait(IN_TIME_S)
        eventually(lambda: markers(cluster, partition) == int(arrives), IN_TIME_S, "the marker")
        before = actions(tail, partition)
        assert before in ([ANNOUNCED], [ANNOUNCED, NOT_WRITTEN]), "the stop may come after the answer has timed out"

        watch.start()
        published = whole_life(tail, partition)
        rest = {True: [[VERIFIED]], False: [[NOT_WRITTEN, ANNOUNCED, VERIFIED], [ANNOUNCED, VERIFIED]]}[arrives]
        assert actions(tail, partition) in [before + one for one in rest]
        assert published[-1].resolution is not None
        by = "administrator" if arrives else "txnwatch"  # nobody knows who wrote a marker whose answer was lost
        assert (published[-1].resolution.how, published[-1].resolution.by) == ("aborted", by)
        assert markers(cluster, partition) == 1


@pytest.mark.long
def test_of_two_processes_one_acts_and_a_paused_one_does_not_act_when_it_continues(
    gate: Gate, cluster: Cluster, tail: EventTail, partitions: list[TopicPartition], tmp_path: Path
) -> None:
    watches = [a_watch(gate, tail, partitions[0], tmp_path / name) for name in ("one", "two")]
    first, second, third, fourth = partitions
    stopped: list[RunningWatch] = []

    def actor(partition: TopicPartition) -> RunningWatch:
        """The process that has announced the latest abort."""
        announced = [event for event in life(tail, partition) if event.action is not None]
        return next(one for one in watches if announced and announced[-1].action.by.endswith(one.checkpoint))

    def is_stopped() -> bool:
        eventually(lambda: actions(tail, second) == [ANNOUNCED], IN_TIME_S, "the announcement")
        stopped.append(actor(second))
        os.kill(stopped[0].pid, signal.SIGSTOP)
        return True

    with contextlib.ExitStack() as stack:
        for watch in watches:
            stack.enter_context(watch)
        for watch in watches:
            watch.until_ready()
        time.sleep(SESSION_MS / 1000)  # until the group has settled; what comes before has to be right too, later
        hang(cluster, tail, first)
        whole_life(tail, first)
        assert actions(tail, first) == [ANNOUNCED, VERIFIED]

        # Stopped between the question whether it still has the lease, to which the answer is yes, and the marker.
        is_asked = gate.at_request(OFFSET_COMMIT, is_stopped)
        hang(cluster, tail, second)
        assert is_asked.wait(IN_TIME_S), actions(tail, second)
        (one,) = stopped
        try:
            published = whole_life(tail, second)
        finally:
            os.kill(one.pid, signal.SIGCONT)
        assert actions(tail, second) == [ANNOUNCED, ANNOUNCED, VERIFIED]
        assert actor(second) is not one

        hang(cluster, tail, third)
        whole_life(tail, third)
        assert actions(tail, third) == [ANNOUNCED, VERIFIED]
        assert life(tail, second) == published

        actor(third).kill()
        hang(cluster, tail, fourth)
        whole_life(tail, fourth)
        assert actions(tail, fourth) == [ANNOUNCED, VERIFIED]
        assert actor(fourth) is not actor(third)
        assert [markers(cluster, partition) for partition in partitions] == [1, 1, 1, 1]
        assert not [line for watch in watches for line in watch.lines if "the query ended" in line]


@pytest.mark.long
def test_an_outcome_of_the_former_speaker_stays_and_aborts_nothing(
    gate: Gate, cluster: Cluster, tail: EventTail, partitions: list[TopicPartition], tmp_path: Path
) -> None:
    """The second one starts after the client has begun anew: the coordinators' log no longer shows the outcome."""
    partition = partitions[0]
    with contextlib.ExitStack() as watches:
        knows = watches.enter_context(a_watch(gate, tail, partition, tmp_path / "knows", "--abort-after-ms", "600000"))
        knows.until_ready()
        hang(cluster, tail, partition)
        eventually(lambda: life(tail, partition)[-1].expected_outcome == "none", IN_TIME_S, "the outcome")
        later = watches.enter_context(a_watch(gate, tail, partition, tmp_path / "later"))
        later.until_ready()
        time.sleep(PAUSE_S)
        assert {event.action for event in life(tail, partition)} == {None}, "the newcomer is silent"
        knows.stop()

        def decided() -> list[IncidentEvent]:
            return [event for event in life(tail, partition) if event.action is not None]

        refused = eventually(decided, IN_TIME_S, "the next speaker")[0]
    assert refused.action is not None
    assert (refused.action.refusal, refused.expected_outcome) == ("outcome_unknown", "none")
    assert (refused.outcome_by or "").endswith(knows.checkpoint)
    assert markers(cluster, partition) == 0
