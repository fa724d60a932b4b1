"""find-hanging by answers alone: what is proven, what is healthy under every race, and what is not proven."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from msgspec.structs import replace

from support.fake_cluster import FakeTransaction
from support.search_world import NAME, SearchWorld, view
from txnwatch.state.model.ports import LeaderStamp
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.model.verdicts import Reason, Verdict
from txnwatch.streaming.search import searcher as searching


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching.time, "sleep", lambda _: None)


@pytest.fixture
def world() -> SearchWorld:
    return SearchWorld()


def hang_now(world: SearchWorld) -> None:
    world.hang()


def forgotten(world: SearchWorld) -> None:
    world.hang()
    world.admin.forget(NAME)


def never_begun(world: SearchWorld) -> None:
    world.admin.write(world.here, world.admin.init(NAME).producer_id)


def elsewhere(world: SearchWorld) -> None:
    owner = world.admin.begin(NAME, world.there)
    world.admin.write(world.here, owner.producer_id)


def another_producer_id(world: SearchWorld) -> None:
    producer_id = world.hang()
    world.views[producer_id] = view(NAME)
    world.admin.transactions[NAME].producer_id = producer_id + 1


def from_the_future(world: SearchWorld) -> None:
    world.admin.now_ms += 10**12
    world.hang()
    world.admin.now_ms -= 10**12


HANGS: dict[str, tuple[Callable[[SearchWorld], None], Reason]] = {
    "of this very moment": (hang_now, Reason.ALREADY_COMPLETED),
    "the coordinator forgot": (forgotten, Reason.NO_TRANSACTIONAL_ID),
    "never begun": (never_begun, Reason.NOT_STARTED),
    "live, but elsewhere": (elsewhere, Reason.NOT_A_PARTICIPANT),
    "the id has moved on": (another_producer_id, Reason.PRODUCER_ID_SUPERSEDED),
    "a client's clock in the future": (from_the_future, Reason.ALREADY_COMPLETED),
}


@pytest.mark.parametrize(("make", "reason"), HANGS.values(), ids=HANGS.keys())
def test_hangs_are_proven(world: SearchWorld, make: Callable[[SearchWorld], None], reason: Reason) -> None:
    make(world)
    found = world.search()
    ((candidate, proof),) = found.hanging
    assert (candidate.partition, proof.reason) == (world.here, reason)
    assert found.not_checked == {}


def end_before_the_coordinators(world: SearchWorld) -> None:
    world.admin.begin(NAME, world.here)
    world.admin.before("list_transactions", lambda: world.admin.end(NAME, commit=True))


def end_before_the_description(world: SearchWorld) -> None:
    world.admin.begin(NAME, world.here)
    world.admin.before("describe_transactions", lambda: world.admin.end(NAME, commit=True))


def end_and_begin_again(world: SearchWorld) -> None:
    world.admin.begin(NAME, world.here)
    for _ in range(9):
        world.admin.before("describe_transactions", lambda: world.admin.end(NAME, commit=True))
        world.admin.before("read_partitions", lambda: None)
        world.admin.before("read_partitions", lambda: world.admin.begin(NAME, world.here))


def taken_in_by_the_next(world: SearchWorld) -> None:
    world.hang()
    world.admin.before("list_transactions", lambda: None)
    world.admin.before("list_transactions", lambda: world.admin.begin(NAME, world.here))


def aborted_by_hand_meanwhile(world: SearchWorld) -> None:
    world.admin.now_ms += 1
    world.hang()
    for _ in range(2):
        world.admin.before("read_partitions", lambda: None)
    world.admin.before("read_partitions", world.admin.partitions[world.here].producers.clear)


def beside_an_idle_id(world: SearchWorld) -> None:
    """The idle id is listed first; the other id with its producer id has begun the transaction."""
    owner = world.admin.init(NAME)
    world.admin.transactions["restored"] = FakeTransaction("restored", owner.producer_id)
    world.admin.begin("restored", world.here)


HEALTHY: dict[str, Callable[[SearchWorld], object]] = {
    "open": lambda world: world.admin.begin(NAME, world.here),
    "its markers are on their way": lambda world: (
        world.admin.begin(NAME, world.here),
        world.admin.prepare(NAME, commit=True),
    ),
    "ends before the coordinators are asked": end_before_the_coordinators,
    "ends between listing and description": end_before_the_description,
    "ends and begins again all the time": end_and_begin_again,
    "taken in by the next transaction": taken_in_by_the_next,
    "ended by hand meanwhile": aborted_by_hand_meanwhile,
    "an idle id has the same producer id": beside_an_idle_id,
}


@pytest.mark.parametrize("make", HEALTHY.values(), ids=HEALTHY.keys())
def test_a_healthy_or_ended_transaction_is_never_reported_as_hanging(
    world: SearchWorld, make: Callable[[SearchWorld], object]
) -> None:
    make(world)
    assert world.search().hanging == []


def partition_away(world: SearchWorld) -> str:
    world.hang()
    world.admin.problems[world.here] = "NO_LEADER"
    return str(world.here)


def hidden_listing(world: SearchWorld) -> str:
    producer_id = world.hang()
    world.admin.forget(NAME)
    world.admin.listing_problems.append("broker 1: TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    return f"{world.here} producer id {producer_id}"


def hidden_by_name(world: SearchWorld) -> str:
    """The listing silently omits the id, and the log knows it: a request by its name is refused."""
    owner = world.admin.begin(NAME, world.here)
    world.views[owner.producer_id] = view(NAME, S.ONGOING, participants=[world.here])
    del world.admin.transactions[NAME]
    world.admin.problems[NAME] = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    return f"{world.here} producer id {owner.producer_id}"


def two_coordinators(world: SearchWorld) -> str:
    producer_id = world.hang()
    before = world.admin.list_transactions

    def listing(producer_ids: Collection[int]) -> object:
        found = before(producer_ids)
        moved = tuple(row._replace(coordinator=2) for row in found.transactions)
        return type(found)(moved, found.problems)

    world.admin.list_transactions = listing  # type: ignore[method-assign, assignment]
    return f"{world.here} producer id {producer_id}"


def two_ids(world: SearchWorld) -> str:
    """A restored quorum has given out the producer id of an idle id again; whose data it is cannot be known."""
    producer_id = world.hang()
    world.admin.transactions["restored"] = FakeTransaction("restored", producer_id)
    world.admin.begin("restored", world.there)
    return f"{world.here} producer id {producer_id}"


def an_id_that_only_the_log_names(world: SearchWorld) -> str:
    producer_id = world.hang()
    world.views[producer_id] = view("expired")
    return f"{world.here} producer id {producer_id}"


UNPROVEN: dict[str, Callable[[SearchWorld], str]] = {
    "a partition without a leader": partition_away,
    "ids may be hidden": hidden_listing,
    "an id is hidden": hidden_by_name,
    "two brokers think they coordinate": two_coordinators,
    "two ids have the producer id": two_ids,
    "the log names another id": an_id_that_only_the_log_names,
}


@pytest.mark.parametrize("make", UNPROVEN.values(), ids=UNPROVEN.keys())
def test_an_unproven_span_is_listed_and_is_no_hang(world: SearchWorld, make: Callable[[SearchWorld], str]) -> None:
    what = make(world)
    found = world.search()
    assert found.hanging == []
    assert what in found.not_checked


def test_a_partition_that_fails_does_not_end_the_search(world: SearchWorld) -> None:
    world.hang()
    world.admin.problems[world.there] = "KAFKA_STORAGE_ERROR"
    found = world.search()
    assert [candidate.partition for candidate, _ in found.hanging] == [world.here]
    assert found.not_checked == {str(world.there): "KAFKA_STORAGE_ERROR"}


def test_a_look_that_was_in_vain_is_taken_again(world: SearchWorld) -> None:
    world.hang()
    world.admin.before("list_transactions", lambda: world.admin.listing_problems.append("NOT_COORDINATOR"))
    world.admin.before("list_transactions", world.admin.listing_problems.clear)
    found = world.search()
    assert len(found.hanging) == 1


def test_data_whose_owner_may_be_in_an_unread_log_is_not_proven(world: SearchWorld) -> None:
    """Its id may be hidden by a right that no probe sees; only its own record would name it."""
    forgotten(world)
    world.log_problems["__transaction_state-3"] = "TOPIC_AUTHORIZATION_FAILED"
    found = world.search()
    assert found.hanging == []
    (why,) = found.not_checked.values()
    assert "__transaction_state-3, which could not be read: TOPIC_AUTHORIZATION_FAILED" in why


@pytest.mark.parametrize(
    ("age_ms", "verdicts"),
    [(60_000, []), (130_000, [Verdict.LONG_RUNNING]), (150_000, [Verdict.LONG_RUNNING]), (166_000, [Verdict.LATE])],
)
def test_each_transaction_has_its_own_timeout(world: SearchWorld, age_ms: int, verdicts: list[Verdict]) -> None:
    world.ongoing(timeout_ms=150_000)
    found = world.search(world.admin.now_ms + age_ms)
    assert [candidate.verdict for candidate, _ in found.overdue] == verdicts
    assert (found.hanging, found.not_checked) == ([], {})


SKEW_MS = 62_000


def stuck_by_our_clock(world: SearchWorld) -> int:
    world.behind_ms = SKEW_MS
    world.prepared(world.admin.now_ms - SKEW_MS)
    return world.admin.now_ms


def late_by_our_clock(world: SearchWorld) -> int:
    world.behind_ms = SKEW_MS
    world.ongoing(timeout_ms=30_000)
    return world.admin.now_ms + SKEW_MS


def late_for_a_coordinator_that_has_just_taken_over(world: SearchWorld) -> int:
    now_ms = world.ongoing(timeout_ms=30_000) + SKEW_MS
    world.led[log_numbered(0)] = LeaderStamp(1, now_ms - 14_000)
    return now_ms


@pytest.mark.parametrize(
    "make", [stuck_by_our_clock, late_by_our_clock, late_for_a_coordinator_that_has_just_taken_over]
)
def test_a_differing_clock_makes_nothing_late_or_stuck(world: SearchWorld, make: Callable[[SearchWorld], int]) -> None:
    found = world.search(make(world))
    assert (found.overdue, found.not_checked) == ([], {})


@pytest.mark.parametrize("behind_ms", [-SKEW_MS, 0, SKEW_MS])
@pytest.mark.parametrize("true_age_ms", [0, 20_000, 30_001, 31_500, 120_000, 10**7])
def test_a_claimed_age_is_true_for_all_clocks(world: SearchWorld, behind_ms: int, true_age_ms: int) -> None:
    """A Prepare* of a long transaction: our clock shows `now`, the coordinator has stamped it by its own."""
    world.behind_ms = behind_ms
    now_ms = world.admin.now_ms
    world.prepared(now_ms - true_age_ms - behind_ms)
    world.admin.transactions[NAME].start_ms -= 10**6 + true_age_ms
    (known,) = world.views
    world.views[known] = replace(world.views[known], start_ms=world.admin.transactions[NAME].start_ms)
    found = world.search()
    assert all(candidate.age_ms < true_age_ms for candidate, _ in found.overdue)
    assert all(candidate.overdue_ms == candidate.age_ms - 30_000 for candidate, _ in found.overdue)
    if true_age_ms > 30_000 + max(0, -behind_ms):
        assert [candidate.verdict for candidate, _ in found.overdue] == [Verdict.STUCK_PREPARE]
    assert found.not_checked == {}


@pytest.mark.parametrize(("led_for_ms", "verdicts"), [(30_001, [Verdict.STUCK_PREPARE]), (30_000, [])])
def test_a_former_coordinators_stamp_is_no_age(world: SearchWorld, led_for_ms: int, verdicts: list[Verdict]) -> None:
    now_ms = world.admin.now_ms + 10**6
    world.prepared(world.admin.now_ms - 10**8)
    world.epochs[log_numbered(0)] = 1
    world.led[log_numbered(0)] = LeaderStamp(1, now_ms - led_for_ms)
    found = world.search(now_ms)
    assert [candidate.verdict for candidate, _ in found.overdue] == verdicts
    assert found.not_checked == {}


@pytest.mark.parametrize("led", [{}, {log_numbered(0): LeaderStamp(2, 1)}], ids=["nobody has stamped", "another has"])
def test_an_age_without_a_timestamp_of_its_coordinator_is_reported_as_not_proven(
    world: SearchWorld, led: dict[TopicPartition, LeaderStamp]
) -> None:
    world.prepared(world.admin.now_ms - 10**8)
    world.epochs[log_numbered(0)] = 1
    world.led = led
    found = world.search()
    assert found.overdue == []
    (why,) = found.not_checked.values()
    unproven = "stuck_prepare by this machine's clock, but not proven by its coordinator's clock"
    assert why.startswith(f"{unproven}: its coordinator took over")


def test_a_coordinator_that_does_not_answer_proves_nothing(world: SearchWorld) -> None:
    world.silence = "broker a:1 is too old"
    found = world.search(world.ongoing(timeout_ms=30_000) + SKEW_MS)
    assert found.overdue == []
    (why,) = found.not_checked.values()
    assert why == "late by this machine's clock, but not proven by its coordinator's clock: broker a:1 is too old"


def test_a_coordinator_that_moves_while_it_is_asked_proves_nothing(world: SearchWorld) -> None:
    now_ms = world.ongoing(timeout_ms=30_000) + SKEW_MS
    world.admin.before("describe_transactions", lambda: None)
    world.admin.before("describe_transactions", lambda: setattr(world.admin.transactions[NAME], "coordinator", 2))
    found = world.search(now_ms)
    assert found.overdue == []
    assert "moved to another broker during the request" in " ".join(found.not_checked.values())


def test_a_two_phase_transaction_is_never_late(world: SearchWorld) -> None:
    world.admin.init(NAME, timeout_ms=2147483647)
    world.admin.begin(NAME, world.here)
    assert world.search(world.admin.now_ms + 10**11).overdue == []


def test_stuck_markers_are_reported_by_the_time_of_their_record(world: SearchWorld) -> None:
    world.prepared(world.admin.now_ms)
    for age_ms, verdicts in ((29_000, []), (31_000, [Verdict.STUCK_PREPARE])):
        found = world.search(world.admin.now_ms + age_ms)
        assert [candidate.verdict for candidate, _ in found.overdue] == verdicts


def test_stuck_markers_without_a_log_are_not_checked(world: SearchWorld) -> None:
    world.admin.begin(NAME, world.here)
    world.admin.prepare(NAME, commit=True)
    world.log_problems["__transaction_state-3"] = "TOPIC_AUTHORIZATION_FAILED"
    found = world.search()
    assert found.overdue == []
    assert "PrepareCommit for an unknown time" in found.not_checked[f"transactional id {NAME!r}"]


def test_a_confirmation_of_another_span_than_the_first_look_saw_is_none(world: SearchWorld) -> None:
    producer_id = world.hang()
    world.admin.before("read_partitions", lambda: None)

    def ended_and_hung_again() -> None:
        world.admin.partitions[world.here].producers.clear()
        world.admin.write(world.here, producer_id)

    world.admin.before("read_partitions", ended_and_hung_again)
    found = world.search()
    ((candidate, _),) = found.hanging
    assert candidate.span.start_offset == 1, "it is found by a look of its own"
    assert world.admin.asked.count("list_transactions") == 4
