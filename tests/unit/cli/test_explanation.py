"""The explanation follows from the readings, and only from them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.cli.explanation import Ending, Explanation, end_of, of_id, of_partition
from txnwatch.state.detection.view import begun
from txnwatch.state.evidence.screening import OwnerViews
from txnwatch.state.model.ports import LeaderStamp
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS, DetectionPolicy, Verdict
from txnwatch.state.telling.commands import Origin
from txnwatch.state.telling.renderings import steps_of
from txnwatch.state.telling.statements import SOONER_OF_HEALTHY, SOONER_OF_TWO_PHASE
from txnwatch.streaming.admin.transactions import DescribedWithLog
from txnwatch.streaming.log.coordinator_log import LogRecord
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

ORIGIN = Origin("cluster", "a:1")
NAME = "checkout-1"
LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 3)
NOW_MS = 1_700_000_000_000
FIRST_LEADER = {log_numbered(0): 0}  # the log has had no election
ONGOING = DescribedTransaction(NAME, 1, S.ONGOING, 1000, 0, 60_000, NOW_MS)

ENDS = {
    "before its timeout": (ONGOING, 0, "open", "yes", NOW_MS + 70_000),
    "until the next scan and the buffer": (ONGOING, 75_000, "open", "yes", NOW_MS + 70_000),
    "past both by our clock alone": (ONGOING, 75_001, "open", "unknown", None),
    "two-phase": (msgspec.structs.replace(ONGOING, timeout_ms=TWO_PHASE_TIMEOUT_MS), 10**11, "open", "no", None),
    "decided": (msgspec.structs.replace(ONGOING, state=S.PREPARE_COMMIT), 10**9, "open", "unknown", None),
}


@pytest.mark.parametrize(("described", "age_ms", "state", "by_itself", "by_ms"), ENDS.values(), ids=ENDS.keys())
def test_a_live_transaction_has_the_expected_end(
    described: DescribedTransaction, age_ms: int, state: str, by_itself: str, by_ms: int | None
) -> None:
    end = end_of(described, None, DetectionPolicy(), NOW_MS + age_ms)
    assert (end.state, end.by_itself, end.by_ms) == (state, by_itself, by_ms)
    assert isinstance(end, Ending)


@pytest.mark.parametrize("age_ms", [10_000, 75_001])
def test_a_transaction_that_is_proven_late_is_late_for_every_value_of_our_clock(age_ms: int) -> None:
    end = end_of(ONGOING, Verdict.LATE, DetectionPolicy(), NOW_MS + age_ms)
    assert (end.state, end.by_itself, end.by_ms) == ("late", "unknown", None)


def test_the_coordinators_next_scan_is_as_late_as_the_brokers_setting(admin: FakeAdmin) -> None:
    slow = DetectionPolicy(coordinator_scan_interval_ms=60_000)
    end = end_of(ONGOING, None, slow, NOW_MS + 80_000)
    assert (end.state, end.by_ms) == ("open", NOW_MS + 120_000)
    admin.begin(NAME, *admin.partitions)
    now_ms = admin.transactions[NAME].start_ms + admin.transactions[NAME].timeout_ms + 20_000
    for policy, state in ((DetectionPolicy(), "late"), (slow, "open")):
        searcher = a_searcher(admin, lambda: now_ms, read_log=lambda _: a_log(admin), policy=policy)
        found = searcher.search(list(admin.partitions))
        (partition,) = admin.partitions
        assert of_partition(ORIGIN, partition, found, now_ms).state == state
        assert bool(found.overdue) is (state == "late")


def a_log(admin: FakeAdmin, stamp_ms: int = 0) -> OwnerViews:
    """The log with the transaction as it is, stamped by its coordinator at this time."""
    described = admin.describe_transactions([NAME])[NAME]
    assert isinstance(described, DescribedTransaction)
    logged = CoordinatorView(
        described.transactional_id,
        0,
        7,
        described.state,
        described.producer_epoch,
        described.timeout_ms,
        described.start_ms,
        stamp_ms,
        stamp_ms,
        described.partitions,
        coordinator_epoch=0,
    )
    stamp = LeaderStamp(described.coordinator, 0)
    return OwnerViews({described.producer_id: logged}, led={log_numbered(0): stamp}, epochs=FIRST_LEADER)


def explained(admin: FakeAdmin, views: dict[int, CoordinatorView] | None = None) -> Explanation:
    (partition,) = admin.partitions
    searcher = a_searcher(admin, lambda: admin.now_ms, read_log=lambda _: OwnerViews(views or {}, epochs=FIRST_LEADER))
    return of_partition(ORIGIN, partition, searcher.search([partition]), admin.now_ms)


@pytest.fixture
def admin() -> FakeAdmin:
    found = FakeAdmin()
    found.create_topic("orders")
    return found


def test_all_clear_is_an_answer(admin: FakeAdmin) -> None:
    found = explained(admin)
    assert (found.state, found.hidden_records, found.ends_by_itself, found.next) == ("all_clear", 0, None, None)
    assert list(found.lines()) == [
        "orders-0: all clear. No transaction is open; read_committed consumers can read to its end, offset 0."
    ]


def test_a_marker_that_is_not_replicated_is_no_open_transaction(admin: FakeAdmin) -> None:
    (partition,) = admin.partitions
    found = a_searcher(admin, lambda: 0).search([partition])
    found.readings[partition] = replace(found.readings[partition], high_watermark=5, last_stable_offset=3)
    row = of_partition(ORIGIN, partition, found, 0)
    assert (row.state, row.hidden_records, row.ends_by_itself) == ("unreplicated", 2, "unknown")


def test_an_open_transaction_leads_to_its_id(admin: FakeAdmin) -> None:
    admin.begin(NAME, *admin.partitions)
    found = explained(admin)
    assert (found.state, found.transactional_id, found.hidden_records) == ("open", NAME, 1)
    assert found.next == f"txnwatch explain --transactional-id {NAME} --bootstrap-server a:1"


@pytest.mark.parametrize("problem", ["NOT_COORDINATOR", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"])
def test_an_unproven_span_is_not_called_a_hang(admin: FakeAdmin, problem: str) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.listing_problems.append(problem)
    admin.forget(NAME)
    found = explained(admin)
    assert (found.state, found.ends_by_itself, found.next) == ("unproven", "unknown", None)
    assert problem in " ".join(found.text)
    assert "HANGING" not in " ".join(found.text)


def test_for_a_hang_with_an_unknown_outcome_a_dry_run_is_suggested(admin: FakeAdmin) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.lose_markers(NAME, commit=True)
    found = explained(admin)
    assert (found.state, found.transactional_id, found.ends_by_itself) == ("hanging", NAME, "no")
    assert found.next == (
        f"txnwatch fence --transactional-id {NAME} --producer-id 1000 --producer-epoch 0 --topic orders --partition 0 "
        "--start-offset 0 --bootstrap-server a:1 --dry-run"
    ), "an abort is refused while the id may use the epoch again"


def handed_out(epoch: int, producer_id: int) -> dict[int, CoordinatorView]:
    """The log: the id has been given an epoch, with which nothing has begun."""
    view = CoordinatorView(NAME, 0, 7, S.EMPTY, epoch, 60_000, None, NOW_MS, NOW_MS, coordinator_epoch=0)
    return {producer_id: begun(view)}


def test_data_of_an_unused_epoch_has_no_owner(admin: FakeAdmin) -> None:
    producer_id = admin.init(NAME).producer_id
    admin.write(*admin.partitions, producer_id)
    found = explained(admin, handed_out(0, producer_id))
    assert "As far as the logs show, no transaction owned the data." in found.text
    assert any("has sent InitProducerId twice" in line for line in found.text), "the client can be an old one"
    assert any("the application that uses it must start again" in line for line in found.lines()), "by the fence"
    fence = f"txnwatch fence --transactional-id {NAME} --producer-id {producer_id} --producer-epoch 0"
    abort = "txnwatch abort --topic orders --partition 0 --start-offset 0"
    at = "--topic orders --partition 0 --start-offset 0"
    assert found.next == f"{fence} {at} --bootstrap-server a:1 && {abort} --bootstrap-server a:1"


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "its beginning cannot be read"])
def test_data_of_two_epochs_may_have_an_owner(admin: FakeAdmin, is_read: bool) -> None:  # noqa: FBT001
    """The first transaction was committed and lost its marker; then comes a stray write of the next epoch."""
    (partition,) = admin.partitions
    producer_id = admin.begin(NAME, partition).producer_id
    admin.lose_markers(NAME, commit=True)
    admin.write(partition, producer_id, admin.init(NAME).producer_epoch)
    if not is_read:
        admin.partitions[partition].starts.clear()
    found = explained(admin, handed_out(1, producer_id))
    assert found.state == "hanging"
    assert "an ABORT marker is right" not in " ".join(found.text)
    assert found.next is not None
    assert found.next.endswith("--dry-run")


def of(
    admin: FakeAdmin,
    last: LogRecord | None = None,
    age_ms: int = 0,
    behind_ms: int = 0,
    policy: DetectionPolicy | None = None,
    log: TopicPartition | None = LOG,
) -> Explanation:
    described = admin.describe_transactions([NAME])[NAME]
    readings = admin.read_partitions(admin.partitions).values()
    now_ms = admin.now_ms + age_ms
    views = a_log(admin, last.timestamp_ms) if last is not None and described.is_live else OwnerViews()
    found = a_searcher(admin, lambda: now_ms, read_log=lambda _: views, behind_ms=behind_ms, policy=policy).judge(
        described
    )
    known = DescribedWithLog(described, [last] if last is not None else [], None, log)
    return of_id(ORIGIN, known, readings, now_ms, found)


def step_of(found: Explanation) -> str:
    """The text of the only step."""
    (step,) = steps_of(found.told)
    return step.text


def a_record(admin: FakeAdmin, state: S, after_ms: int) -> LogRecord:
    value = TransactionLogValue(1, 1000, 0, 60_000, state, None, 0, 0)
    return LogRecord(0, 5, admin.now_ms + after_ms, NAME, value)


def test_a_complete_transaction_shows_how_long_it_took(admin: FakeAdmin) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.end(NAME, commit=True)
    found = of(admin, a_record(admin, S.COMPLETE_COMMIT, 1_500), age_ms=10**7)
    assert found.state == "idle"
    assert "was committed at 2023-11-14 22:13:21.500Z, after 1.5s" in found.text[0]


def test_an_idle_id_with_a_partition_that_cannot_be_read_is_not_called_well(admin: FakeAdmin) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.lose_markers(NAME, commit=True)
    admin.problems.update(dict.fromkeys(admin.partitions, "NO_LEADER"))
    found = of(admin)
    assert found.state == "unproven"
    assert found.text[-1] == "It is not known whether it has open data on orders-0: this could not be read."


def test_an_idle_id_with_data_left_open_is_not_called_well(admin: FakeAdmin) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.lose_markers(NAME, commit=True)
    found = of(admin)
    assert (found.state, found.next) == (
        "unproven",
        "txnwatch explain --topic orders --partition 0 --bootstrap-server a:1",
    )


@pytest.mark.parametrize(("epoch", "text"), [(None, "no epoch yet"), (0, "epoch 0")])
def test_an_id_without_an_epoch_is_explained(admin: FakeAdmin, epoch: int | None, text: str) -> None:
    admin.init(NAME).producer_epoch = epoch
    place = "Its coordinator is broker 1, the leader of __transaction_state-3."
    assert of(admin).text[1] == f"Producer id 1000, {text}, timeout 1m00s. {place}"


def test_the_partition_of_the_log_is_named_although_no_record_was_read(admin: FakeAdmin) -> None:
    """It follows from the id; only a log that no broker shows has none."""
    admin.begin(NAME, *admin.partitions)
    late = of(admin, age_ms=10**7)
    assert late.text[1].endswith("the leader of __transaction_state-3.")
    assert "or move the leader of __transaction_state-3 to another broker" in step_of(late)
    hidden = of(admin, age_ms=10**7, log=None)
    assert hidden.text[1].endswith("the leader of its partition of __transaction_state.")


@pytest.mark.parametrize(("after_ms", "state"), [(30_000, "open"), (30_001, "stuck_prepare")])
def test_markers_that_are_awaited_for_long_are_stuck(admin: FakeAdmin, after_ms: int, state: str) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.prepare(NAME, commit=True)
    found = of(admin, a_record(admin, S.PREPARE_COMMIT, 0), age_ms=after_ms)
    assert (found.state, found.ends_by_itself) == (state, "unknown")
    assert found.text[2] == "It holds orders-0; open data is on orders-0."
    assert found.text[-1].startswith("Ends by itself: not known: it ends when the leaders of its partitions accept")
    assert step_of(found).startswith(
        "If its partitions have leaders and enough in-sync replicas, and it still waits: restart broker 1 (not if it "
    )
    assert "move the leader of __transaction_state-3 to another broker; " in step_of(found)
    assert found.next is None, "the partition would lead back to the id"


def test_a_healthy_transaction_says_how_to_end_it_sooner_and_what_that_costs(admin: FakeAdmin) -> None:
    producer = admin.begin(NAME, *admin.partitions)
    found = of(admin)
    assert (found.state, found.ends_by_itself, len(found.text)) == ("open", "yes", 4)
    assert step_of(found) == SOONER_OF_HEALTHY
    assert "consumers do not get its data" in step_of(found)
    identity = f"--producer-id {producer.producer_id} --producer-epoch 0"
    assert found.next == f"txnwatch fence --transactional-id {NAME} {identity} --bootstrap-server a:1"


def test_an_old_transaction_leads_to_the_fence_and_to_the_leader_of_its_log(admin: FakeAdmin) -> None:
    producer = admin.begin(NAME, *admin.partitions)
    found = of(admin, a_record(admin, S.ONGOING, 0), age_ms=10**7)
    assert found.ends_by_itself != "yes"
    assert step_of(found).startswith("To end it, restart its application or fence its id"), "it may never end by itself"
    assert "still in state Ongoing half a minute after that (the answer is CONCURRENT_TRANSACTIONS" in step_of(found)
    assert ": restart broker 1 (not if it has the last in-sync replica of a partition, " in step_of(found)
    assert step_of(found).endswith("or move the leader of __transaction_state-3 to another broker.")
    identity = f"--producer-id {producer.producer_id} --producer-epoch 0"
    assert found.next == f"txnwatch fence --transactional-id {NAME} {identity} --bootstrap-server a:1"


def test_a_two_phase_transaction_is_not_fenced(admin: FakeAdmin) -> None:
    """Its client may have prepared it, and may want to commit it."""
    admin.begin(NAME, *admin.partitions)
    admin.transactions[NAME].timeout_ms = TWO_PHASE_TIMEOUT_MS
    found = of(admin, a_record(admin, S.ONGOING, 0), age_ms=10**9)
    assert found.next is None
    assert "fence" not in " ".join(found.text)
    assert step_of(found) == SOONER_OF_TWO_PHASE, "what a fence costs, and no command to paste"


def test_the_configured_threshold_decides_what_is_stuck(admin: FakeAdmin) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.prepare(NAME, commit=True)
    policy = DetectionPolicy(stuck_prepare_ms=3)
    assert of(admin, a_record(admin, S.PREPARE_COMMIT, 0), age_ms=4, policy=policy).state == "stuck_prepare"


def test_a_coordinator_whose_clock_is_behind_has_nothing_stuck(admin: FakeAdmin) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.prepare(NAME, commit=True)
    found = of(admin, a_record(admin, S.PREPARE_COMMIT, 0), age_ms=62_000, behind_ms=62_000)
    assert found.state == "open"


def test_a_partition_that_cannot_be_read_is_named_as_awaited(admin: FakeAdmin) -> None:
    admin.begin(NAME, *admin.partitions)
    admin.prepare(NAME, commit=False)
    (partition,) = admin.partitions
    admin.problems[partition] = "NO_LEADER"
    assert of(admin).text[3].endswith("Not reachable: orders-0 (NO_LEADER).")
