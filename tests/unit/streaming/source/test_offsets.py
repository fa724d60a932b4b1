"""The source's offset: the same text for the same offset, and the barrier has every exception."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_changes

from txnwatch.state.model.clocks import Clock, ClockBase, Leader
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.facts import Barrier, StandsAt
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, CoordinatorAccess, TopicPartition
from txnwatch.streaming.source.datasource import TransactionsDataSource
from txnwatch.streaming.source.lister import check_access
from txnwatch.streaming.source.offsets import VERSION, LookedAt, NotBegun, Position, SourceOffset
from txnwatch.streaming.source.options import parse_options

_T = TypeVar("_T")
ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 1)
LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 3)

NAMES = ("orders", "orders-1", "orders-1-10", "a.b_c", TRANSACTION_STATE_TOPIC)
whole_numbers = st.integers(0, 2**62)
partitions = st.builds(TopicPartition, st.sampled_from(NAMES), st.integers(0, 12))
topic_ids = st.text("abcXYZ_-", max_size=4)
starts = st.dictionaries(partitions, whole_numbers, max_size=3)


@st.composite
def offsets(draw: st.DrawFn) -> SourceOffset:
    """Any offset; all partitions of a topic share its id, as they do in one answer of the cluster."""
    ids = draw(st.fixed_dictionaries(dict.fromkeys(("orders", "orders-1", "orders-1-10", "a.b_c"), topic_ids)))
    ids[TRANSACTION_STATE_TOPIC] = draw(topic_ids)
    positions = {
        partition: Position(
            ids[partition.topic],
            draw(whole_numbers),
            draw(st.integers(0, 99)),
            draw(whole_numbers),
            draw(st.integers(1, 9)),
            is_stale=draw(st.booleans()),
            whole_epoch=draw(st.none() | st.integers(0, 99)),
        )
        if draw(st.booleans())
        else NotBegun(ids[partition.topic])
        for partition in draw(st.lists(partitions, max_size=6, unique=True))
    }
    return SourceOffset(
        draw(st.text(max_size=9)),
        draw(whole_numbers),
        draw(whole_numbers),
        draw(whole_numbers),
        positions,
        draw(starts),
        draw(starts),
        draw(st.dictionaries(partitions, topic_ids, max_size=3)),
        clock_base=draw(st.builds(ClockBase, st.text(max_size=9), st.integers())),
        clock_set_by_ms=draw(st.integers()),
        standing=draw(st.dictionaries(partitions, st.builds(StandsAt, whole_numbers, whole_numbers, whole_numbers))),
        looked=draw(st.dictionaries(partitions, st.builds(LookedAt, topic_ids, whole_numbers, whole_numbers))),
    )


def text(offset: SourceOffset) -> str:
    return json.dumps(offset.to_json())


@settings(max_examples=50)
@given(offsets())
def test_an_offset_comes_back_from_its_text(offset: SourceOffset) -> None:
    assert SourceOffset.from_json(json.loads(text(offset))) == offset


@settings(max_examples=50)
@given(offsets(), st.randoms(use_true_random=False))
def test_the_same_offset_has_the_same_text_in_whatever_order_it_was_made(offset: SourceOffset, random: Random) -> None:
    def shuffled(entries: dict[TopicPartition, _T]) -> dict[TopicPartition, _T]:
        return dict(random.sample(list(entries.items()), len(entries)))

    made_otherwise = replace(
        offset,
        positions=shuffled(offset.positions),
        begun=shuffled(offset.begun),
        reread=shuffled(offset.reread),
        gone=shuffled(offset.gone),
    )
    assert text(made_otherwise) == text(offset)


def test_the_text_is_pinned_because_checkpoints_hold_it() -> None:
    offset = SourceOffset(
        "cluster",
        7,
        1000,
        1001,
        {
            TopicPartition("orders", 10): Position("id-o", 9, 3, 9, leader=1),
            ORDERS: Position("id-o", 5, 2, 8, is_stale=True, leader=4),
            LOG: NotBegun("id-t"),
        },
        begun={TopicPartition("orders", 10): 4},
        reread={ORDERS: 2},
        gone={PAYMENTS: "id-p"},
        backlog_end={LOG: 6},
        scan_interval_ms=2000,
        clock_base=ClockBase("boot", 5),
        clock_set_by_ms=-3000,
    )
    assert text(offset) == (
        '{"backlog_end": {"__transaction_state-3": 6}, "barrier": 7, "begun": {"orders-10": 4}, '
        '"clock": ["boot", 5, -3000], "cluster_id": "cluster", "coordinator_listed_ms": 1001, '
        '"coordinator_view": "log", "data_listed_ms": 1000, '
        '"gone": {"payments-1": "id-p"}, "reread": {"orders-0": 2}, "scan_interval_ms": 2000, '
        '"topics": {"__transaction_state": {"id": "id-t", "partitions": {"3": null}}, '
        '"orders": {"id": "id-o", "partitions": {"0": [5, 2, 8, 4, 1], "10": [9, 3, 9, 1, 0]}}}, "version": 9}'
    )


@pytest.mark.parametrize("version", [VERSION + 1, 0, str(VERSION)])
def test_an_offset_of_another_version_asks_for_a_new_checkpoint(version: object) -> None:
    raw = {**SourceOffset.beginning().to_json(), "version": version}
    with pytest.raises(CheckpointError, match=f"has version {version}; this txnwatch reads version {VERSION}: "):
        SourceOffset.from_json(raw)


def test_a_checkpoint_of_something_else_asks_for_a_new_one() -> None:
    with pytest.raises(CheckpointError, match="has no version: it is another program's checkpoint; this"):
        SourceOffset.from_json({"topics": {}})


def test_at_the_beginning_nothing_is_listed_and_nothing_read() -> None:
    assert SourceOffset.beginning() == SourceOffset("", 0, 0, 0, {})


def an_offset(**positions: Position) -> SourceOffset:
    named = {"orders": ORDERS, "payments": PAYMENTS, "log": LOG}
    return SourceOffset("cluster", 7, 1000, 1001, {named[name]: position for name, position in positions.items()})


READ = Position("id", 9, 3, 9, leader=1)
CUT = Position("id", 5, 3, 9, leader=1)
NOT_LISTED = Position("id", 9, 3, 9, is_stale=True, leader=1)
CUT_AND_NOT_LISTED = Position("id", 5, 3, 9, is_stale=True, leader=1)
UNKNOWN = NotBegun("id")
NONE: frozenset[TopicPartition] = frozenset()
DATA, COORDINATOR = frozenset({ORDERS}), frozenset({LOG})


@pytest.mark.parametrize(
    ("offset", "stale_data", "limited_data", "stale_coordinator"),
    [
        pytest.param(an_offset(orders=READ, log=READ), NONE, NONE, NONE, id="all read to the listed end"),
        pytest.param(an_offset(orders=CUT, log=READ), NONE, DATA, NONE, id="data cut by a limit"),
        pytest.param(an_offset(orders=NOT_LISTED, log=READ), DATA, NONE, NONE, id="data not listed"),
        pytest.param(an_offset(orders=CUT_AND_NOT_LISTED, log=READ), DATA, DATA, NONE, id="data cut and not listed"),
        pytest.param(an_offset(orders=UNKNOWN, log=READ), DATA, NONE, NONE, id="data not begun"),
        pytest.param(an_offset(orders=READ, log=CUT), NONE, NONE, COORDINATOR, id="log cut into chunks"),
        pytest.param(an_offset(orders=READ, log=NOT_LISTED), NONE, NONE, COORDINATOR, id="log not listed"),
        pytest.param(an_offset(orders=READ, log=UNKNOWN), NONE, NONE, COORDINATOR, id="log not begun"),
        pytest.param(an_offset(orders=NOT_LISTED, payments=READ, log=CUT), DATA, NONE, COORDINATOR, id="some of each"),
        pytest.param(an_offset(), NONE, NONE, NONE, id="nothing watched"),
    ],
)
def test_a_barrier_names_where_it_proves_nothing(
    offset: SourceOffset,
    stale_data: frozenset[TopicPartition],
    limited_data: frozenset[TopicPartition],
    stale_coordinator: frozenset[TopicPartition],
) -> None:
    fact = offset.barrier_fact({})
    assert (fact.stale_data, fact.limited_data, fact.stale_coordinator) == (stale_data, limited_data, stale_coordinator)


def test_a_barrier_has_the_numbers_and_the_ranges_that_went_back() -> None:
    led, away = Position("id", 9, 3, 9, leader=2), TopicPartition(TRANSACTION_STATE_TOPIC, 4)
    offset = replace(an_offset(orders=READ, log=led), reread={ORDERS: 2}, scan_interval_ms=2_000)
    offset.positions[away] = with_changes(led, is_stale=True)
    clocks = {2: Clock(-35, 40, 1001)}
    assert offset.barrier_fact(clocks) == Barrier(
        number=7,
        data_listed_ms=1000,
        coordinator_listed_ms=1001,
        reread={ORDERS: 2},
        stale_coordinator=frozenset({away}),
        leaders={LOG: Leader(2, 3)},
        clocks=clocks,
        scan_interval_ms=2_000,
    )


@pytest.mark.parametrize(("offset", "has_log"), [(an_offset(orders=READ), False), (an_offset(log=UNKNOWN), True)])
def test_a_barrier_records_whether_there_is_a_coordinators_log(offset: SourceOffset, has_log: object) -> None:
    assert offset.barrier_fact(None).has_coordinator_log is has_log


@pytest.mark.parametrize("end_text", ["latest", "anything"])
def test_a_text_for_the_end_sets_no_limit(end_text: str) -> None:
    offset = an_offset(orders=READ)
    assert offset.bounded(end_text) is offset


@pytest.mark.parametrize(
    ("end", "read_to"), [(4, 4), (9, 9), (99, 9), (0, 0)], ids=["within", "at the end", "behind it", "nothing"]
)
def test_an_end_cuts_reading_and_never_listing(end: int, read_to: int) -> None:
    bounded = an_offset(orders=READ, payments=READ, log=READ).bounded({ORDERS: end, TopicPartition("unwatched", 0): 1})
    assert bounded.positions == {ORDERS: with_changes(READ, offset=read_to), PAYMENTS: READ, LOG: READ}
    assert bounded.barrier_fact({}).limited_data == (DATA if read_to < READ.listed else NONE)


def test_the_text_of_an_offset_has_its_view() -> None:
    plain = SourceOffset("c", 1, 2, 3, {})
    assert plain.to_json()["coordinator_view"] == "log"
    asked = replace(plain, coordinator_access=CoordinatorAccess.API)
    assert asked.to_json()["coordinator_view"] == "api"
    assert SourceOffset.from_json(asked.to_json()) == asked
    assert SourceOffset.from_json(plain.to_json()).coordinator_access is CoordinatorAccess.LOG


@pytest.mark.parametrize("view", ["log", "api", "none"])
@pytest.mark.parametrize("written", list(CoordinatorAccess))
def test_an_offset_of_another_view_needs_a_new_checkpoint(view: str, written: CoordinatorAccess) -> None:
    options = parse_options({"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "coordinatorView": view})
    offset = SourceOffset("c", 1, 2, 3, {}, coordinator_access=written)
    check_access(SourceOffset.beginning(), options)
    if view == written:
        check_access(offset, options)
    else:
        with pytest.raises(CheckpointError, match=f"view {written}, and this run has the view {view}"):
            check_access(offset, options)


def test_a_batch_of_another_view_is_not_planned_again() -> None:
    """Spark plans a batch that was not committed from the text of its offsets, without a new listing."""
    reader = TransactionsDataSource(
        {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "coordinatorView": "api"}
    ).streamReader(None)
    with pytest.raises(CheckpointError):
        reader.partitions(SourceOffset.beginning().to_json(), SourceOffset("c", 1, 2, 3, {}).to_json())
