"""Open data whose producer id no read part of the coordinator's log names, while another part cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from support.facts import BucketRun, a_marker, log_notice, seen, transaction
from support.ledger_world import LedgerWorld
from txnwatch.state.detection.proof import Look
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import log_numbered

NAME, AWAY = "checkout-1", 3
UNREAD = f"__transaction_state-{AWAY}: has no leader: its ids cannot be listed"


class Scene:
    """A bucket that has read one partition with open data of an id that it does not know, and a ledger behind it."""

    def __init__(self) -> None:
        self.world = LedgerWorld()
        self.run = BucketRun()
        self.owner = self.world.admin.begin(NAME, self.world.partition)
        self.looks: set[str] = set()

    def go(self, batches: int = 12, *facts: Any, **exceptions: Any) -> list[tuple[str, int, str]]:
        """Some batches of half a second, each given to the ledger; returns what was published."""
        for number in range(batches):
            away = frozenset({log_numbered(AWAY)})
            exact = {"stale_coordinator": away, "first_readings": away, **exceptions}
            self.run.batch(*(facts if number == 0 else ()), **exact)
            self.looks |= {why for count in self.run.counts for why, _ in count.waiting}
            self.world.batch(*self.run.everything)
        return self.world.published()

    @property
    def data(self) -> Any:
        at = self.world.admin.partitions[self.world.partition]
        start = at.producers[self.owner.producer_id].txn_start_offset
        return seen(0, 10, data=start, producer_id=self.owner.producer_id, partition=self.world.partition,
                    topic_id=at.topic_id)  # fmt: skip


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_owner_whose_records_were_not_read_proves_the_hang_with_a_whole_listing(scene: Scene) -> None:
    """A second id with the producer id may belong to the part of the log that is away."""
    scene.world.admin.lose_markers(NAME, commit=False)
    scene.world.admin.listing_problems.append(UNREAD)
    assert scene.go(12, scene.data) == []
    assert any(UNREAD in line for line in scene.world.reports if "neither confirmed nor refuted" in line)
    scene.world.admin.listing_problems.clear()
    assert scene.go(20) == [("hanging", 1, "opened")]
    (event,) = scene.world.topic.published
    assert (event.transactional_id, event.reason) == (NAME, "already_completed")


def test_an_owner_that_its_coordinator_lists_is_the_only_one_if_the_log_was_read_before(scene: Scene) -> None:
    """The id was idle when reading began, so the state does not have it."""
    scene.run.batch(first_readings=frozenset({log_numbered(AWAY)}))
    scene.world.admin.lose_markers(NAME, commit=False)
    scene.world.admin.listing_problems.append(UNREAD)
    assert scene.go(12, scene.data, first_readings=frozenset()) == [("hanging", 1, "opened")]


def test_only_a_complete_listing_proves_that_there_is_no_owner(scene: Scene) -> None:
    scene.world.admin.forget(NAME)
    scene.world.admin.listing_problems.append(UNREAD)
    assert scene.go(12, scene.data) == []
    (line,) = [line for line in scene.world.reports if "neither confirmed nor refuted" in line]
    assert UNREAD in line, "what is not known is visible"
    scene.world.admin.listing_problems.clear()
    assert scene.go(20) == [("hanging", 1, "opened")]
    assert scene.world.topic.published[0].reason == "no_transactional_id"


def test_it_is_reported_at_once_when_the_leader_is_back(scene: Scene) -> None:
    scene.world.admin.lose_markers(NAME, commit=False)
    scene.world.admin.problems[NAME] = "NOT_COORDINATOR"
    assert scene.go(100, scene.data) == [], "its owner's part is the one that is away"
    scene.world.admin.problems.clear()
    assert scene.go(3, stale_coordinator=frozenset()) == [("hanging", 1, "opened")]


def test_a_healthy_transaction_causes_a_request_and_no_candidate(scene: Scene) -> None:
    assert scene.go(60, scene.data) == []
    assert scene.world.ledger.counts["hanging:confirmed"] == 0


def test_young_data_is_not_asked_about(scene: Scene) -> None:
    scene.go(3, scene.data)
    assert scene.world.admin.asked == []


def test_its_end_is_emitted(scene: Scene) -> None:
    scene.world.admin.lose_markers(NAME, commit=False)
    scene.go(12, scene.data)
    start = scene.data.first_offset
    end = seen(10, 11, marker=a_marker(start + 10), producer_id=scene.owner.producer_id,
               partition=scene.world.partition, topic_id=scene.data.topic_id)  # fmt: skip
    assert scene.go(1, end)[-1] == ("hanging", 2, "resolved")


def test_an_id_that_is_known_waits_for_its_own_part_of_the_log(scene: Scene) -> None:
    scene.world.admin.lose_markers(NAME, commit=False)
    known = transaction(1, S.COMPLETE_ABORT, producer_id=scene.owner.producer_id, log_partition=AWAY)
    assert scene.go(60, scene.data, known) == []
    assert scene.world.admin.asked == []


UNREADABLE = [log_notice(NoticeKind.GAP, 6, AWAY)]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_part_of_the_log_that_its_leader_cannot_read_is_no_reason_not_to_ask(scene: Scene, *, is_known: bool) -> None:
    """A bad disk, or records of a version that nobody here knows: the coordinator answers from its memory."""
    scene.world.admin.lose_markers(NAME, commit=False)
    known = transaction(1, S.COMPLETE_ABORT, producer_id=scene.owner.producer_id, log_partition=AWAY)
    facts = [scene.data, *UNREADABLE, *([known] if is_known else [])]
    assert scene.go(12, *facts, stale_coordinator=frozenset()) == [("hanging", 1, "opened")]
    (event,) = scene.world.topic.published
    assert (event.reason, event.expected_outcome) == ("already_completed", "unknown")


def test_a_held_span_counts_as_held_until_the_timeout_of_its_transaction(scene: Scene) -> None:
    live = transaction(1, S.ONGOING, scene.world.partition, producer_id=scene.owner.producer_id, log_partition=AWAY)
    assert scene.go(60, scene.data, live, *UNREADABLE, stale_coordinator=frozenset()) == []
    assert scene.world.admin.asked == []
    scene.world.admin.lose_markers(NAME, commit=False)
    scene.run.pass_time(10 * 60_000)
    assert scene.go(12, stale_coordinator=frozenset()) == [("hanging", 1, "opened")]


def test_without_the_coordinators_log_nothing_is_proven(scene: Scene) -> None:
    gone = {"stale_coordinator": frozenset(), "has_coordinator_log": False}
    assert scene.go(60, scene.data, **gone) == []
    assert scene.looks == {Look.COORDINATOR_NOT_SHOWN}
    assert scene.world.admin.asked == [], "no coordinator is asked either: no answer could name the owner"
