"""The ledger: each incident opens once, resolves once, has evidence, and a fresh read has confirmed it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from support.ledger_world import HOUR_MS, LedgerWorld
from txnwatch.state.evidence.ending import LOG_SHOWS_MS, LOOK_AGAIN_MS
from txnwatch.state.incidents.found_incidents import OUTCOME_BUDGET_MS
from txnwatch.state.incidents.ledger import CONFIRM_BUDGET_MS
from txnwatch.state.model.facts import TransactionEnd
from txnwatch.state.model.findings import SpanEnd, SpanEnded, TransactionMoved
from txnwatch.state.model.incident import EndedBy
from txnwatch.state.model.ports import MarkerSpec
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import Verdict


@pytest.fixture
def world() -> LedgerWorld:
    return LedgerWorld()


OPENED, RESOLVED = ("hanging", 1, "opened"), ("hanging", 2, "resolved")


def test_a_confirmed_candidate_opens_an_incident_on_every_sink(world: LedgerWorld) -> None:
    world.batch(world.hang())
    assert world.published() == [OPENED]
    assert world.redis.published == world.topic.published
    (event,) = world.topic.published
    assert (event.transactional_id, event.reason, event.txn_start_offset) == ("checkout-1", "already_completed", 0)
    assert (event.last_stable_offset, event.high_watermark, event.hidden_records) == (0, 1, 1)
    assert (event.is_lso_blocker, event.cleanup_policy, event.expected_outcome) == (True, "delete", "abort")
    assert event.suggested_command == (
        "txnwatch fence --transactional-id checkout-1 --producer-id 1000 --producer-epoch 0 "
        "--topic orders --partition 0 --start-offset 0 --bootstrap-server broker:9092 && "
        "txnwatch abort --topic orders --partition 0 --start-offset 0 --bootstrap-server broker:9092"
    )


def test_the_partition_is_read_before_and_after_the_coordinator(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch()
    world.admin.asked.clear()
    world.batch(candidate)
    assert world.admin.asked == [
        "read_partitions",
        "list_transactions",
        "describe_transactions",
        "read_partitions",
        "log_epochs",
        "cleanup_policies",
        "read_span_histories",
    ]
    assert set(world.admin.budgets) == {CONFIRM_BUDGET_MS, OUTCOME_BUDGET_MS}


def test_a_candidate_that_is_emitted_again_opens_nothing(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    asked = len(world.admin.asked)
    world.batch(candidate)
    assert world.published() == [OPENED]
    assert len(world.admin.asked) == asked, "and asks nobody"


def test_a_marker_that_comes_in_between_refutes(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.admin.before("list_transactions", lambda: world.abort(candidate))
    world.batch(candidate)
    assert world.published() == []
    assert world.ledger.counts == {"hanging:refuted": 1}
    assert world.reports == [], "nothing is unknown about it"


def test_a_transaction_that_takes_the_partition_in_refutes(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.admin.begin("checkout-1", world.partition)
    world.batch(candidate)
    assert world.published() == []


UNKNOWNS = {
    "the partition": lambda world: world.admin.problems.update({world.partition: "NOT_LEADER_OR_FOLLOWER"}),
    "the coordinator": lambda world: world.admin.problems.update({"checkout-1": "NOT_COORDINATOR"}),
    "the leader while reading": lambda world: world.admin.move_leader_while_read(world.partition, 2),
}


@pytest.mark.parametrize("break_it", UNKNOWNS.values(), ids=UNKNOWNS.keys())
def test_an_unreadable_value_is_unknown_and_logged_once_and_requested_again(
    world: LedgerWorld, break_it: object
) -> None:
    candidate = world.hang()
    assert callable(break_it)
    break_it(world)
    world.batch(candidate)
    assert world.published() == []
    assert len(world.reports) == 1
    assert "can be neither confirmed nor refuted" in world.reports[0]
    world.batch(candidate)
    assert len(world.reports) <= 1
    world.admin.problems.clear()
    world.batch(candidate)
    assert world.published() == [OPENED]


def test_a_short_listing_is_no_proof_that_an_id_is_gone(world: LedgerWorld) -> None:
    world.admin.write(world.partition, producer_id=77)
    world.admin.listing_problems.append("broker 2 did not answer")
    world.batch(world.candidate(77))
    assert world.published() == []
    world.admin.listing_problems.clear()
    world.batch(world.candidate(77))
    assert world.topic.published[0].reason == "no_transactional_id"


def test_its_marker_resolves_an_incident_once(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    ended = world.abort(candidate)
    world.batch(ended)
    world.batch(ended)
    assert world.published() == [OPENED, RESOLVED]
    resolution = world.topic.published[-1].resolution
    assert resolution is not None
    assert (resolution.how, resolution.marker_offset) == ("aborted", 7)
    assert world.topic.published[-1].suggested_command is None


@pytest.mark.parametrize("how", [SpanEnd.CENSUS, SpanEnd.MARKER])
@pytest.mark.parametrize("is_led_anew", [False, True])
def test_the_marker_that_the_state_has_not_read_is_read_from_the_log(
    world: LedgerWorld, how: SpanEnd, *, is_led_anew: bool
) -> None:
    """Another leader may have another log, in which the first marker of the producer may be of other data."""
    candidate = world.hang()
    world.batch(candidate)
    for commit in (True, False):  # the first one closes it
        world.admin.mark(MarkerSpec(world.partition, candidate.producer_id, 0, 0, commit=commit))
    if is_led_anew:
        world.admin.move_leader(world.partition, 2)
    world.batch(SpanEnded(candidate.producer_id, candidate.partition, candidate.span, how, None))
    resolution = world.topic.published[-1].resolution
    assert resolution is not None
    assert resolution.how == ("no_longer_open" if is_led_anew else "committed")


def test_the_end_of_what_was_never_reported_is_not_published(world: LedgerWorld) -> None:
    world.batch(world.abort(world.hang()))
    assert world.published() == []


def test_an_incident_is_never_opened_twice(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    world.batch(candidate)
    world.batch(world.abort(candidate))
    world.batch(candidate)
    assert world.published() == [OPENED, RESOLVED]


def test_a_span_that_hangs_again_is_another_incident(world: LedgerWorld) -> None:
    candidate = world.hang()
    ended = SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.TRUNCATED, None)
    for _ in range(2):  # its leader has it open all the time: a marker came, and an election took it away
        world.batch(candidate)
        world.batch(ended)
    world.restart()
    world.batch(candidate)
    assert world.published() == [OPENED, RESOLVED, OPENED, RESOLVED, OPENED]
    assert len({event.incident_id for event in world.topic.published}) == 3


def test_a_restart_remembers_what_was_published_and_publishes_nothing_again(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    world.restart()
    world.batch(candidate)
    world.batch(world.abort(candidate))
    world.restart()
    world.batch(candidate)
    assert world.published() == [OPENED, RESOLVED]


def test_an_end_that_was_missed_without_a_watcher_is_found_by_a_later_check(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    world.abort(candidate)
    world.restart()
    world.batch()
    assert world.published() == [OPENED], "the log may still show how"
    world.batch(after_ms=LOG_SHOWS_MS)
    assert world.published() == [OPENED, RESOLVED]
    resolution = world.topic.published[-1].resolution
    assert resolution is not None
    assert (resolution.how, resolution.by) == ("no_longer_open", "unknown")


def test_a_look_that_is_faster_than_the_log_leaves_the_end_to_it(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    ended = world.abort(candidate)
    world.batch(after_ms=LOOK_AGAIN_MS)
    world.batch(ended)
    assert world.published() == [OPENED, RESOLVED]
    resolution = world.topic.published[-1].resolution
    assert resolution is not None
    assert resolution.how == "aborted"


def test_a_span_that_is_open_at_the_next_check_has_no_missed_end(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    row = world.admin.partitions[world.partition].producers.pop(candidate.producer_id)
    world.batch(after_ms=LOOK_AGAIN_MS)
    world.admin.partitions[world.partition].producers[candidate.producer_id] = row
    world.batch(after_ms=LOG_SHOWS_MS)
    world.batch(after_ms=LOOK_AGAIN_MS)
    assert world.published() == [OPENED]


def test_looking_again_without_an_answer_resolves_nothing(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    world.abort(candidate)
    world.admin.problems[world.partition] = "no leader"
    world.batch(after_ms=LOOK_AGAIN_MS + 1)
    assert world.published() == [OPENED]


def test_open_incidents_are_checked_at_intervals_and_not_in_every_batch(world: LedgerWorld) -> None:
    world.batch(world.hang())
    world.batch(after_ms=LOOK_AGAIN_MS)
    world.admin.asked.clear()
    for _ in range(10):
        world.batch()
    assert world.admin.asked == []
    world.batch(after_ms=LOOK_AGAIN_MS)
    assert world.admin.asked == ["describe_transactions", "read_partitions"]


def test_events_of_another_cluster_on_the_same_topic_are_not_ours(world: LedgerWorld) -> None:
    world.batch(world.hang())
    (event,) = world.topic.published
    ledger = world.a_ledger([replace(event, cluster_id="another")])
    assert ledger.open_incidents == []


def test_a_sink_that_is_away_gets_everything_in_order_when_it_is_back(world: LedgerWorld) -> None:
    world.redis.is_away = True
    first = world.hang("first")
    world.batch(first)
    world.batch(world.abort(first))
    assert world.published() == [OPENED, RESOLVED]
    assert world.redis.published == []
    world.redis.is_away = False
    for _ in range(10):
        world.batch()
    assert world.redis.published == world.topic.published
    assert "are kept and delivered later" in world.reports[0]
    assert "works again: all kept events are delivered" in world.reports[-1]


def test_a_late_transaction_opens_and_its_end_resolves(world: LedgerWorld) -> None:
    candidate = world.late()
    world.batch(candidate)
    world.batch(candidate)
    later = msgspec.structs.replace(candidate.view, state=S.COMPLETE_COMMIT, start_ms=candidate.view.start_ms + 1)
    end = TransactionEnd(S.PREPARE_ABORT, EndedBy.COORDINATOR, 5, 70_000)
    world.batch(TransactionMoved(candidate.producer_id, Verdict.LATE, candidate.view, later, end))
    assert world.published() == [("late", 1, "opened"), ("late", 2, "resolved")]
    opened, resolved = world.topic.published
    assert (opened.topic, opened.transactional_id, opened.overdue_ms) == (None, "slow", 1_500)
    assert resolved.resolution is not None
    assert (resolved.resolution.how, resolved.resolution.by) == ("aborted", "coordinator")


def test_an_early_warning_that_becomes_late_is_one_incident(world: LedgerWorld) -> None:
    world.batch(world.late(Verdict.LONG_RUNNING))
    world.batch(msgspec.structs.replace(world.late(), overdue_ms=9))
    world.batch(world.late(Verdict.LONG_RUNNING))
    assert world.published() == [("long_running", 1, "opened"), ("late", 2, "updated")]
    assert world.topic.published[1].severity == "warning"


def test_a_stuck_prepare_names_the_partitions_whose_markers_are_outstanding(world: LedgerWorld) -> None:
    world.batch(world.late(Verdict.STUCK_PREPARE))
    (event,) = world.topic.published
    assert event.pending_partitions == (str(TopicPartition("orders", 0)),)
    assert event.expected_outcome == "commit"


def test_a_transaction_that_ended_without_a_watcher_is_found_by_a_later_check(world: LedgerWorld) -> None:
    world.batch(world.late())
    world.admin.end("slow", commit=True)
    world.batch(after_ms=HOUR_MS)
    world.batch(after_ms=LOG_SHOWS_MS)
    assert world.published() == [("late", 1, "opened"), ("late", 2, "resolved")]
