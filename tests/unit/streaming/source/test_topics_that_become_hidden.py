"""A topic that may not be seen any more is not a topic that is gone: nothing may be resolved because of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.problems import a_problem
from txnwatch.state.model.ports import UNKNOWN_PARTITION, ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.source.census_schedule import SnapshotSchedule
from txnwatch.streaming.source.driver_file import DriverFile
from txnwatch.streaming.source.lister import Lister
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.planner import RereadRequest

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)
LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
SECRET = TopicPartition("secret", 0)
BROKER = Endpoint("a", 1)
LOOKS = 6
NOTHING_YET = SourceOffset("", 0, 0, 0, {})


class OneBroker(Cluster):
    """Answers as a broker would; topics can be hidden or deleted."""

    def __init__(self) -> None:
        super().__init__([BROKER], OPTIONS.security)
        self.hidden: set[str] = set()
        self.there = {"orders", "other", LOG.topic}
        self.recreated_logs: set[str] = set()

    def metadata_from(self, _: Endpoint, topics: Iterable[str] | None = None) -> Metadata:
        found = {
            name: TopicInfo(name, self.id_of(name), partitions={0: PartitionInfo(1, 0)})
            for name in (self.there - self.hidden if topics is None else topics)
        }
        for name, topic in found.items():
            if name in self.hidden:
                found[name] = replace(topic, topic_id="", partitions={}, error=a_problem("TOPIC_AUTHORIZATION_FAILED"))
            elif name not in self.there:
                found[name] = replace(topic, topic_id="", partitions={}, error=UNKNOWN_PARTITION)
        return Metadata("cluster", {1: BROKER}, found)

    def id_of(self, name: str) -> str:
        return f"{'new-' if name in self.recreated_logs else ''}id-of-{name}"

    def list_offsets(self, partitions: Iterable[TopicPartition], **_: Any) -> dict[TopicPartition, ListedOffset]:
        return dict.fromkeys(partitions, ListedOffset(10, 0, 1))


def restarted(broker: OneBroker) -> OneBroker:
    broker.metadata = None
    return broker


OPTIONS = parse_options(
    {"kafka.bootstrap.servers": "a:1", "subscribePattern": ".*", "metadataRefreshMs": "1", "healIntervalMs": "1"}
)


@pytest.fixture
def broker() -> OneBroker:
    return OneBroker()


def gone_after(lister: Lister, offset: SourceOffset) -> set[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(LOOKS):
        lister.looked_s = float("-inf")
        following = lister.next_offset(offset)
        assert following is not None
        offset = following
        found |= offset.gone.keys()
    return found


def begun(broker: OneBroker) -> tuple[Lister, SourceOffset]:
    lister = Lister(OPTIONS, broker)
    offset = lister.next_offset(NOTHING_YET)
    assert offset is not None
    return lister, offset


def test_a_deleted_topic_is_gone(broker: OneBroker) -> None:
    lister, offset = begun(broker)
    broker.there.remove("orders")
    assert gone_after(lister, offset) == {ORDERS}


def test_one_answer_without_a_topic_does_not_delete_it_where_the_coordinators_log_is_looked_for(
    broker: OneBroker,
) -> None:
    """The broker that shows the new log is behind with another topic."""
    broker.there = {"orders", "other"}
    lister = Lister(OPTIONS, broker)
    offset = lister.next_offset(NOTHING_YET)
    lister.looked_s = float("inf")  # no look at all topics is due
    for shown in ({"other", LOG.topic}, {"orders", "other", LOG.topic}):
        assert offset is not None
        broker.there = shown
        offset = lister.next_offset(offset)
    assert offset is not None
    assert offset.gone == {}
    assert {ORDERS, LOG} <= offset.positions.keys()


class ShownAgain(OneBroker):
    """A right is given back at the moment in which the coordinators' log is looked for by its name."""

    def metadata_from(self, endpoint: Endpoint, topics: Iterable[str] | None = None) -> Metadata:
        if topics is not None and list(topics) == [LOG.topic]:
            self.hidden.clear()
        return super().metadata_from(endpoint, topics)


def test_a_topic_that_is_shown_again_within_a_look_is_not_gone() -> None:
    broker = ShownAgain()
    broker.there.remove(LOG.topic)
    lister, offset = begun(broker)
    lister.looked_s = float("inf")  # no look at all topics is due
    broker.hidden.add("orders")
    broker.refresh({"orders"})  # as a census does
    broker.there.add(LOG.topic)
    following = lister.next_offset(offset)
    assert following is not None
    assert following.gone == {}
    assert following.positions[ORDERS].is_stale


def test_a_hidden_topic_is_not_gone(broker: OneBroker) -> None:
    lister, offset = begun(broker)
    broker.hidden.add("orders")
    assert gone_after(lister, offset) == set()
    following = lister.next_offset(offset)
    assert following is not None
    assert following.positions[ORDERS].is_stale, "what is not read is not proven"


def test_nor_is_it_after_a_restart(broker: OneBroker) -> None:
    _, offset = begun(broker)
    broker.hidden.add("orders")
    broker.metadata = None
    assert gone_after(Lister(OPTIONS, broker), offset) == set()


def test_a_hidden_topic_that_is_deleted_later_is_gone(broker: OneBroker) -> None:
    lister, offset = begun(broker)
    broker.hidden.add("orders")
    assert gone_after(lister, offset) == set()
    broker.hidden.clear()
    broker.there.remove("orders")
    assert gone_after(lister, offset) == {ORDERS}


def test_a_re_created_coordinators_log_is_read(broker: OneBroker) -> None:
    lister, offset = begun(broker)
    broker.recreated_logs.add(LOG.topic)
    stale, ids = [], []
    for _ in range(LOOKS):
        lister.looked_s = float("-inf")
        following = lister.next_offset(offset)
        assert following is not None
        offset = following
        stale.append(offset.positions[LOG].is_stale)
        ids.append(offset.positions[LOG].topic_id)
        if LOG in offset.begun:
            assert (offset.begun[LOG], offset.gone) == (10, {LOG: f"id-of-{LOG.topic}"}), "from its beginning"
    assert stale == [True, True, False, False, False, False], "only after several looks, each at another broker"
    assert ids[0] == f"id-of-{LOG.topic}"
    assert ids[-1] == broker.id_of(LOG.topic)


def test_a_coordinators_log_that_is_not_shown_is_never_gone(broker: OneBroker) -> None:
    lister, offset = begun(broker)
    broker.there.remove(LOG.topic)
    assert gone_after(lister, offset) == set()
    following = lister.next_offset(offset)
    assert following is not None
    assert following.positions[LOG].is_stale


class Requesting:
    """A lister whose job requests a hidden partition."""

    def __init__(self, broker: OneBroker, directory: Path) -> None:
        self.file = DriverFile(directory / "driver")
        self.broker = broker
        self.lister = Lister(replace(OPTIONS, driver_file=str(self.file.path)), broker)
        self.offset = SourceOffset("", 0, 0, 0, {})

    def round(self, *requested: TopicPartition) -> SourceOffset:
        self.file.write([RereadRequest(partition, None) for partition in requested], None)
        following = self.lister.next_offset(self.offset)
        assert following is not None
        self.offset = following
        self.lister.looked_s = float("-inf")
        return following


@pytest.fixture
def requesting(broker: OneBroker, tmp_path: Path) -> Requesting:
    return Requesting(broker, tmp_path)


def test_a_hidden_participant_is_unproven_for_as_long_as_it_is_hidden(requesting: Requesting) -> None:
    requesting.broker.there.add(SECRET.topic)
    requesting.broker.hidden.add(SECRET.topic)
    requesting.round()
    for looks in range(LOOKS):
        barrier = requesting.round(*([SECRET] if not looks else [])).barrier_fact(None)
        assert barrier.stale_data == {SECRET}
        assert not barrier.limited_data, "and it holds nobody up"
    offset = SourceOffset.from_json(json.loads(json.dumps(requesting.offset.to_json())))
    again = Lister(OPTIONS, restarted(requesting.broker)).next_offset(offset)
    assert again is not None
    assert SECRET in again.barrier_fact(None).stale_data, "after a restart too"


def test_a_hidden_participant_stays_unproven_between_two_looks_at_the_metadata(requesting: Requesting) -> None:
    requesting.broker.there.add(SECRET.topic)
    requesting.broker.hidden.add(SECRET.topic)
    requesting.round()
    requesting.round(SECRET)
    for _ in range(LOOKS):
        requesting.lister.looked_s = float("inf")
        assert SECRET in requesting.round().barrier_fact({}).stale_data


def test_once_it_is_shown_it_is_read_from_where_nothing_is_open_below(requesting: Requesting) -> None:
    requesting.broker.there.add(SECRET.topic)
    requesting.broker.hidden.add(SECRET.topic)
    requesting.round()
    requesting.round(SECRET)
    requesting.broker.hidden.clear()
    offset = requesting.round()
    assert (offset.begun, offset.gone) == ({SECRET: 10}, {}), "at once, and nothing of it was ever read"
    assert not requesting.round().barrier_fact(None).stale_data


def test_a_participant_that_is_gone_is_not_hidden(requesting: Requesting) -> None:
    requesting.round()
    assert SECRET not in requesting.round(SECRET).positions


def test_a_topic_that_the_options_exclude_is_not_missing(requesting: Requesting) -> None:
    requesting.lister.options = replace(requesting.lister.options, pattern="o.*")
    requesting.broker.there.add(SECRET.topic)
    requesting.broker.hidden.add(SECRET.topic)
    requesting.round()
    assert SECRET not in requesting.round(SECRET).positions


def test_a_hidden_partition_that_is_no_longer_selected_is_dropped(requesting: Requesting) -> None:
    requesting.broker.there.add(SECRET.topic)
    requesting.broker.hidden.add(SECRET.topic)
    requesting.round()
    assert SECRET in requesting.round(SECRET).positions
    without = Lister(replace(OPTIONS, pattern="(?!secret).*"), restarted(requesting.broker))
    offset = without.next_offset(requesting.offset)
    assert offset is not None
    assert SECRET not in offset.positions
    assert not offset.barrier_fact(None).stale_data


@pytest.mark.parametrize("changes", [{}, {"reread": {LOG: 0}}], ids=["hidden", "the coordinators' log is read again"])
def test_a_partition_that_no_census_can_describe_does_not_delay_one_that_is_behind(changes: dict[str, Any]) -> None:
    rota = SnapshotSchedule(OPTIONS)
    log, hidden = Position("log-id", 5, 0, 5, leader=1), NotBegun("")
    positions = {LOG: log, SECRET: hidden} if not changes else {LOG: log}
    whole = SourceOffset("cluster", 2, 0, 0, {**positions, ORDERS: Position("id", 9, 0, 9, leader=1)}, **changes)
    behind = replace(whole, positions={**positions, ORDERS: Position("id", 9, 0, 100, leader=1)})
    known = Metadata("cluster", {}, {})
    rota.look_at(known, {})
    rota.next_census(whole, whole, ())
    census = rota.next_census(whole, behind, ())
    assert census is not None
    assert census.asked[ORDERS].is_behind


def test_a_census_keeps_asking_for_a_hidden_topic(broker: OneBroker) -> None:
    rota = SnapshotSchedule(
        parse_options(
            {"kafka.bootstrap.servers": "a:1", "subscribe": "none", "censusPattern": ".*", "censusIntervalMs": "1"}
        )
    )
    offset = NOTHING_YET
    for looks in range(LOOKS):
        if looks:
            broker.hidden.add("orders")
        rota.round_due_s = 0.0
        rota.look_at(broker.refresh(), {})
        census = rota.next_census(offset, offset, ())
        assert census is not None
    assert ORDERS in census.missing
    assert OTHER in census.asked


def asked(rota: SnapshotSchedule, broker: OneBroker) -> set[TopicPartition]:
    """What the next census describes."""
    rota.look_at(broker.refresh(), {})
    census = rota.next_census(NOTHING_YET, NOTHING_YET, ())
    return set(census.asked) if census is not None else set()


@pytest.mark.parametrize("is_known", [True, False], ids=["hidden since", "hidden when txnwatch starts"])
def test_a_census_describes_a_topic_that_is_shown_again(broker: OneBroker, is_known: bool) -> None:  # noqa: FBT001
    """A marker may have ended what was open while the topic was hidden; then nothing stands there."""
    rota = SnapshotSchedule(
        parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "none", "censusPattern": ".*"})
    )
    if is_known:
        asked(rota, broker)
    broker.hidden = {"orders"}
    assert asked(rota, broker) == (set() if is_known else {OTHER})
    assert asked(rota, broker) == set()
    broker.hidden = set()
    assert asked(rota, broker) == {ORDERS}
    assert asked(rota, broker) == set()
