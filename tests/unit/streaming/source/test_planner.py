"""From the last offset and a listing to the next offset: each rule by itself, then all of them over any history."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_changes

from txnwatch.state.model.clocks import ClockBase
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.source.offsets import LookedAt, NotBegun, Position, SourceOffset, is_begun
from txnwatch.streaming.source.planner import Limits, ListedPartition, Listing, plan

ORDERS, PAYMENTS, AUDIT = (TopicPartition(name, 0) for name in ("orders", "payments", "audit"))
LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
Positions = dict[TopicPartition, Position | NotBegun]
Answers = dict[TopicPartition, ListedPartition]

NO_LIMITS = Limits()
Rereads = dict[TopicPartition, int]


def planned(
    known: Positions, answers: Answers, limits: Limits = NO_LIMITS, rereads: Rereads | None = None
) -> SourceOffset:
    return plan(
        SourceOffset("cluster", 6, 900, 901, known), Listing("cluster", answers, 1000, 1001), limits, rereads or {}
    )


def at(
    offset: int, listed: int | None = None, *, topic_id: str = "id", epoch: int = 3, stale: bool = False
) -> Position:
    return Position(topic_id, offset, epoch, offset if listed is None else listed, 1, is_stale=stale)


def an_answer(end: int | None, *, start: int | None = None, topic_id: str = "id", epoch: int = 3) -> ListedPartition:
    return ListedPartition(topic_id, ListedOffset(end, epoch, 1) if end is not None else None, start)


UNREAD = NotBegun("id")


def test_a_plan_is_one_barrier_further_with_the_times_of_its_listing() -> None:
    listing = Listing("cluster", {}, data_listed_ms=1000, coordinator_listed_ms=1001)
    assert plan(SourceOffset.beginning(), listing, NO_LIMITS, {}) == SourceOffset("cluster", 1, 1000, 1001, {})


@pytest.mark.parametrize(
    ("bases", "set_by_ms"),
    [
        ([ClockBase("a", 500), ClockBase("a", 500), ClockBase("a", 3_600_500)], [0, 0, 3_600_000]),
        ([ClockBase("a", 500), ClockBase("a", -3_599_500), ClockBase("a", -3_599_500)], [0, -3_600_000, 0]),
        ([ClockBase("a", 500), ClockBase("a", 1_100), ClockBase("a", 1_700)], [0, 0, 1_200]),
        ([ClockBase("a", 500), ClockBase("b", 9_000_000), ClockBase("b", 9_000_000)], [0, 0, 0]),
        ([None, ClockBase("a", 500), ClockBase("a", 5_500)], [0, 0, 5_000]),
    ],
    ids=["forward", "back", "in small steps", "the machine was restarted", "not known at first"],
)
def test_an_offset_has_by_how_much_our_clock_was_set(bases: list[ClockBase | None], set_by_ms: list[int]) -> None:
    offset, found = SourceOffset.beginning(), []
    for base in bases:
        offset = plan(offset, Listing("cluster", {}, 1000, 1001, clock_base=base), NO_LIMITS, {})
        assert SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
        assert offset.barrier_fact({}).clock_set_by_ms == offset.clock_set_by_ms
        found.append(offset.clock_set_by_ms)
    assert found == set_by_ms


# what was known, what the leader answered -> where the partition stands now
ONE_PARTITION: dict[str, tuple[Position | NotBegun | None, ListedPartition, Position | NotBegun]] = {
    "read on to the end": (at(10), an_answer(30), at(30)),
    "nothing was written": (at(10), an_answer(10), at(10)),
    "a new leader's epoch is kept": (at(10), an_answer(30, epoch=4), at(30, epoch=4)),
    "a start is for what is not begun": (at(10), an_answer(30, start=20), at(30)),
    "cut short before, caught up now": (at(10, 20), an_answer(30), at(30)),
    "an end lower than read: truncated": (at(10), an_answer(6), at(6)),
    "no answer: carried, with the old epoch and end": (at(10, 20), an_answer(None), at(10, 20, stale=True)),
    "still no answer": (at(10, stale=True), an_answer(None), at(10, stale=True)),
    "an answer again": (at(10, stale=True), an_answer(30), at(30)),
    "new": (None, an_answer(30, start=5), at(30)),
    "new, no answer": (None, an_answer(None), UNREAD),
    "new, no answer for its end, but for its start": (None, an_answer(None, start=5), UNREAD),
    "new, no answer for its start": (None, an_answer(30), UNREAD),
    "unread, an answer": (UNREAD, an_answer(30, start=5), at(30)),
    "unread, no answer": (UNREAD, an_answer(None), UNREAD),
    "unread, still no answer for its start": (UNREAD, an_answer(30), UNREAD),
    "another topic of the same name": (at(10, topic_id="old"), an_answer(30, start=0), at(30)),
    "another topic, no answer": (at(10, topic_id="old"), an_answer(None), UNREAD),
}


@pytest.mark.parametrize("partition", [ORDERS, LOG], ids=["data", "log"])
@pytest.mark.parametrize(("known", "answer", "position"), ONE_PARTITION.values(), ids=ONE_PARTITION.keys())
def test_the_position_of_a_partition_follows_from_its_answer(
    partition: TopicPartition, known: Position | None, answer: ListedPartition, position: Position
) -> None:
    before = {} if known is None else {partition: known}
    assert planned(before, {partition: answer}).positions == {partition: position}


@pytest.mark.parametrize(
    ("known", "answer", "begun"),
    [
        pytest.param(None, an_answer(30, start=5), {ORDERS: 5}, id="new"),
        pytest.param(None, an_answer(30, start=30), {ORDERS: 30}, id="new and empty"),
        pytest.param(UNREAD, an_answer(30, start=5), {ORDERS: 5}, id="answered at last"),
        pytest.param(at(10, topic_id="old"), an_answer(30, start=0), {ORDERS: 0}, id="another topic of the same name"),
        pytest.param(at(0), an_answer(30, start=5), {}, id="begun before, at 0"),
        pytest.param(None, an_answer(30), {}, id="no answer for the start"),
        pytest.param(None, an_answer(None, start=5), {}, id="no answer for the end"),
    ],
)
def test_reading_begins_once_start_and_end_are_listed(
    known: Position | None, answer: ListedPartition, begun: dict[TopicPartition, int]
) -> None:
    assert planned({} if known is None else {ORDERS: known}, {ORDERS: answer}).begun == begun


@pytest.mark.parametrize(
    ("known", "answers", "gone"),
    [
        pytest.param(at(10), {}, {ORDERS: "id"}, id="deleted"),
        pytest.param(UNREAD, {}, {ORDERS: "id"}, id="deleted before it was read"),
        pytest.param(at(10, topic_id="old"), {ORDERS: an_answer(3, start=0)}, {ORDERS: "old"}, id="made anew"),
        pytest.param(at(10, topic_id="old"), {ORDERS: an_answer(None)}, {ORDERS: "old"}, id="made anew, no answer"),
        pytest.param(at(10), {ORDERS: an_answer(None)}, {}, id="there, but no answer"),
    ],
)
def test_a_deleted_partition_is_dropped_under_its_topic_id(
    known: Position, answers: Answers, gone: dict[TopicPartition, str]
) -> None:
    assert planned({ORDERS: known}, answers).gone == gone


THREE: Answers = {ORDERS: an_answer(100), PAYMENTS: an_answer(310), AUDIT: an_answer(5)}
THREE_KNOWN: Positions = {ORDERS: at(0), PAYMENTS: at(10), AUDIT: at(5)}


@pytest.mark.parametrize(
    ("limit", "ends"),
    [
        pytest.param(None, (100, 310, 5), id="no limit"),
        pytest.param(400, (100, 310, 5), id="as much as there is"),
        pytest.param(40, (20, 30, 5), id="both are far behind and get the same"),
        pytest.param(150, (100, 60, 5), id="the small backlog is read whole, the large one gets the rest"),
        pytest.param(1, (1, 11, 5), id="each moves on, however small the share"),
    ],
)
def test_a_limit_fills_small_backlogs_first_and_cuts_reading_but_not_listing(
    limit: int | None, ends: tuple[int, int, int]
) -> None:
    found = planned(THREE_KNOWN, THREE, Limits(data_offsets=limit)).positions
    assert found == {
        partition: at(end, answer.end.offset) for (partition, answer), end in zip(THREE.items(), ends, strict=True)
    }


def test_one_partition_that_is_far_behind_limits_no_other() -> None:
    busy = {TopicPartition("busy", number): (at(0), an_answer(700)) for number in range(5)}
    known = {ORDERS: at(0), **{partition: position for partition, (position, _) in busy.items()}}
    answers = {ORDERS: an_answer(400_000), **{partition: answer for partition, (_, answer) in busy.items()}}
    found = planned(known, answers, Limits(data_offsets=4_000))
    assert found.barrier_fact(None).limited_data == {ORDERS}
    assert found.positions[ORDERS].offset == 500


def test_a_limit_counts_neither_what_is_truncated_nor_what_is_not_listed() -> None:
    known = {ORDERS: at(50), PAYMENTS: at(10), AUDIT: at(5)}
    answers = {ORDERS: an_answer(20), PAYMENTS: an_answer(20), AUDIT: an_answer(None)}
    found = planned(known, answers, Limits(data_offsets=10)).positions
    assert found == {ORDERS: at(20), PAYMENTS: at(20), AUDIT: at(5, stale=True)}


def test_no_distance_in_offsets_cuts_the_log() -> None:
    """The cleaner leaves a handful of records in thousands of millions of offsets: only reading shows what is there."""
    found = planned({}, {LOG: an_answer(2_500_000_000, start=0)}, Limits(data_offsets=1))
    assert found.positions == {LOG: at(2_500_000_000)}
    assert found.barrier_fact(None).stale_coordinator == frozenset()


BACKLOG_ENDS: dict[str, tuple[int, Position | None, int | None, ListedPartition, Rereads, int]] = {
    "there when reading began": (0, None, None, an_answer(30, start=0), {}, 30),
    "there, but it had not answered": (6, UNREAD, None, an_answer(30, start=0), {}, 30),
    "made later": (6, None, None, an_answer(30, start=0), {}, 0),
    "made later, and it had not answered": (6, UNREAD, 0, an_answer(30, start=0), {}, 0),
    "shown later": (6, None, None, an_answer(5_000_000, start=0), {}, 5_000_000),
    "shown later, and it had not answered": (6, UNREAD, 0, an_answer(5_000_000, start=0), {}, 5_000_000),
    "read on": (6, at(30), 30, an_answer(40), {}, 30),
    "no answer": (6, at(30), 30, an_answer(None), {}, 30),
    "read on from what a batch left": (6, at(30), 30, an_answer(40), {LOG: 7}, 30),
    "read again as a whole": (6, at(30), 20, an_answer(40), {LOG: 0}, 40),
    "cut": (6, at(30), 30, an_answer(20), {}, 20),
    "another log of that name": (6, at(30, topic_id="old"), 30, an_answer(9, start=0), {}, 9),
}


@pytest.mark.parametrize(
    ("barrier", "known", "backlog_end", "answer", "rereads", "expected"), BACKLOG_ENDS.values(), ids=BACKLOG_ENDS.keys()
)
def test_records_from_before_reading_began_are_not_new(
    barrier: int,
    known: Position | None,
    backlog_end: int | None,
    answer: ListedPartition,
    rereads: Rereads,
    expected: int,
) -> None:
    known_backlog = {} if backlog_end is None else {LOG: backlog_end}
    before = SourceOffset(
        "cluster", barrier, 900, 901, {} if known is None else {LOG: known}, backlog_end=known_backlog
    )
    found = plan(before, Listing("cluster", {LOG: answer}, 1000, 1001), NO_LIMITS, rereads)
    assert found.backlog_end.get(LOG, 0) == expected


@pytest.mark.parametrize(("barrier", "expected"), [(0, 30), (6, 0)], ids=["there at the start", "made later"])
def test_a_log_that_answers_late_is_as_old_as_when_it_was_found(barrier: int, expected: int) -> None:
    before = SourceOffset("cluster", barrier, 900, 901, {})
    for answer in (an_answer(None), an_answer(None), an_answer(30, start=0), an_answer(40, start=0)):
        before = SourceOffset.from_json(
            json.loads(json.dumps(plan(before, Listing("cluster", {LOG: answer}, 1000, 1001), NO_LIMITS, {}).to_json()))
        )
        at_first = expected if is_begun(before.positions[LOG]) else 0
        assert before.backlog_end.get(LOG, 0) == at_first


REREADS: dict[str, tuple[Position | None, ListedPartition, Rereads, Rereads]] = {
    "reread from below": (at(10), an_answer(30), {ORDERS: 4}, {ORDERS: 4}),
    "reread from where it stands": (at(10), an_answer(30), {ORDERS: 12}, {ORDERS: 10}),
    "no answer": (at(10), an_answer(None), {ORDERS: 4}, {}),
    "not begun before": (UNREAD, an_answer(30, start=5), {ORDERS: 4}, {}),
    "not known": (None, an_answer(30, start=5), {ORDERS: 4}, {}),
    "another topic by now": (at(10, topic_id="old"), an_answer(30, start=0), {ORDERS: 4}, {}),
    "no longer there": (at(10), an_answer(1), {PAYMENTS: 4}, {}),
}


@pytest.mark.parametrize(("known", "answer", "rereads", "reread"), REREADS.values(), ids=REREADS.keys())
def test_a_begun_partition_that_answers_can_be_read_again(
    known: Position | None,
    answer: ListedPartition,
    rereads: Rereads,
    reread: dict[TopicPartition, int],
) -> None:
    found = planned({} if known is None else {ORDERS: known}, {ORDERS: answer}, rereads=rereads)
    assert found.reread == reread


def test_a_range_that_is_read_again_ends_at_or_above_the_former_position() -> None:
    limits = Limits(data_offsets=15)
    back = planned({ORDERS: at(80)}, {ORDERS: an_answer(100)}, limits, {ORDERS: 40})
    assert back.positions == {ORDERS: at(80, 100)}
    assert planned(back.positions, {ORDERS: an_answer(100)}, limits).positions == {ORDERS: at(95, 100)}


LOOKED = LookedAt("id", 10, 7)


def test_a_change_between_scan_and_look_is_no_end() -> None:
    before = SourceOffset("cluster", 6, 900, 901, {ORDERS: at(50, 60), PAYMENTS: at(5)})
    listing = Listing("cluster", {PAYMENTS: an_answer(7)}, 1000, 1001, looked={ORDERS: LOOKED})
    beyond = plan(before, listing, NO_LIMITS, {ORDERS: 40})
    assert (beyond.gone, beyond.let_go, beyond.reread) == ({}, [ORDERS], {})
    assert beyond.barrier_fact({}).looked_at == {ORDERS}
    still = plan(beyond, listing, NO_LIMITS, {})
    assert (still.gone, still.let_go, still.looked) == ({}, [], {ORDERS: LOOKED})
    answers = {PAYMENTS: an_answer(7), ORDERS: an_answer(900, start=800)}
    again = plan(still, Listing("cluster", answers, 1000, 1001), NO_LIMITS, {})
    assert (again.gone, again.looked, again.begun) == ({}, {}, {ORDERS: 800})
    assert again.barrier_fact({}).begun == {ORDERS: 800}


@pytest.mark.parametrize(
    "listing",
    [
        Listing("cluster", {}, 1000, 1001),
        Listing("cluster", {ORDERS: an_answer(9, start=0, topic_id="new")}, 1000, 1001),
        Listing("cluster", {}, 1000, 1001, looked={ORDERS: LookedAt("new", 10, 8)}),
    ],
    ids=["deleted", "made anew, and scanned", "made anew, and looked at"],
)
def test_a_partition_that_was_looked_at_ends_under_its_topic_id(listing: Listing) -> None:
    before = SourceOffset("cluster", 7, 900, 901, {}, looked={ORDERS: LOOKED})
    assert plan(before, listing, NO_LIMITS, {}).gone == {ORDERS: "id"}


def test_an_unread_position_is_not_begun() -> None:
    assert [is_begun(position) for position in (None, UNREAD, at(0), at(5, stale=True))] == [False, False, True, True]


def test_a_partition_that_is_behind_keeps_the_leader_epoch_under_which_it_was_read_whole() -> None:
    """In this order: read whole, then behind under three leaders, without an answer, and read whole again."""
    rounds = [(10, 3, None), (30, 3, 5), (30, 4, 5), (30, 6, 5), (None, 6, 5), (30, 6, None)]
    known, found = at(0, epoch=2), []
    for end, epoch, limit in rounds:
        known = planned({ORDERS: known}, {ORDERS: an_answer(end, epoch=epoch)}, Limits(limit)).positions[ORDERS]
        assert isinstance(known, Position)
        found.append((known.offset, known.epoch, known.read_under))
    assert found == [(10, 3, 3), (15, 3, 3), (20, 4, 3), (25, 6, 3), (25, 6, 3), (30, 6, 6)]


small = st.integers(0, 60)
answers_of_a_round = st.dictionaries(
    st.sampled_from([ORDERS, PAYMENTS, AUDIT, LOG]),
    st.builds(
        ListedPartition,
        st.sampled_from(["id", "id", "new"]),
        st.none() | st.builds(ListedOffset, small, st.integers(0, 3), st.integers(1, 3)),
        st.none() | small,
    ),
)
rereads = st.dictionaries(st.sampled_from([ORDERS, PAYMENTS, LOG]), small, max_size=2)
rounds = st.tuples(
    answers_of_a_round,
    st.builds(Limits, st.none() | st.integers(1, 30)),
    rereads,
)


@given(st.lists(rounds, min_size=1, max_size=8))
def test_every_plan_of_any_history_keeps_the_law(history: list[tuple[Answers, Limits, Rereads]]) -> None:
    before = SourceOffset.beginning()
    for number, (answers, limits, rereads) in enumerate(history, start=1):
        after = plan(before, Listing("cluster", answers, 10 * number, 10 * number + 1), limits, rereads)
        assert (after.barrier, after.data_listed_ms, after.coordinator_listed_ms) == (
            number,
            10 * number,
            10 * number + 1,
        )
        check_partitions(before, after, answers)
        check_limits(before, after, answers, limits)
        assert SourceOffset.from_json(json.loads(json.dumps(after.to_json()))) == after
        before = after


def check_partitions(before: SourceOffset, after: SourceOffset, answers: Answers) -> None:
    same = {
        partition: position
        for partition, position in before.positions.items()
        if partition in answers and answers[partition].topic_id == position.topic_id
    }
    assert after.positions.keys() == answers.keys()
    assert after.gone == {p: position.topic_id for p, position in before.positions.items() if p not in same}
    for partition, answer in answers.items():
        now, known = after.positions[partition], same.get(partition)
        assert now.topic_id == answer.topic_id
        if answer.end is None:
            assert now == (with_changes(known, is_stale=True) if is_begun(known) else NotBegun(answer.topic_id))
        assert is_begun(now) == (is_begun(known) or partition in after.begun), "nothing is read without a beginning"
        assert not (is_begun(known) and partition in after.begun), "nothing begins twice"
        if is_begun(now) and answer.end is not None:
            assert ListedOffset(now.listed, now.epoch, now.leader, now.connection) == answer.end
            assert not now.is_stale
            assert now.offset <= answer.end.offset
        else:
            assert now.is_stale
    for partition in after.reread:
        assert is_begun(same.get(partition))
        assert answers[partition].end is not None


def check_limits(before: SourceOffset, after: SourceOffset, answers: Answers, limits: Limits) -> None:
    read, waiting = 0, 0
    for partition, now in after.positions.items():
        answered = answers[partition].end
        if answered is None or not is_begun(now):
            continue
        end, known = answered.offset, before.positions.get(partition)
        start = after.begun.get(partition, known.offset if is_begun(known) else 0)
        start = min(start, after.reread.get(partition, start))
        if partition == LOG or end <= start or limits.data_offsets is None:
            assert now.offset == end
        else:
            assert now.offset > start, "whoever is behind moves on"
            read, waiting = read + now.offset - start, waiting + 1
    if limits.data_offsets is not None:
        assert read <= limits.data_offsets + waiting
