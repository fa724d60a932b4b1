"""How a hang ended is read from its partition where the state has not read its marker; no claim decides where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from support.forged_events import Topic
from support.incidents import an_event
from support.ledger_world import LedgerWorld
from txnwatch.state.evidence.ending import LOG_SHOWS_MS, LOOK_AGAIN_MS
from txnwatch.state.incidents.found_incidents import END_BUDGET_MS
from txnwatch.state.incidents.value_rules import problem_of
from txnwatch.state.model.findings import SpanCandidate, SpanEnd, SpanEnded
from txnwatch.state.model.incident import EndedBy, EndKind, IncidentEvent, Resolution
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC, MarkerSpec
from txnwatch.state.model.values import NEVER_MS


def marked(stage: Any, candidate: SpanCandidate, *kinds: bool) -> None:
    for commit in kinds:
        stage.admin.mark(MarkerSpec(candidate.partition, candidate.producer_id, 0, 0, commit=commit))


def end_of(event: IncidentEvent) -> Resolution:
    assert event.resolution is not None
    return event.resolution


def test_data_that_the_next_transaction_has_absorbed_was_not_committed_by_anybody_else() -> None:
    world = LedgerWorld()
    candidate = world.hang()
    world.batch(candidate)
    marked(world, candidate, True)
    span = msgspec.structs.replace(candidate.span, absorbed=True, was_proven_unowned=True)
    world.batch(SpanEnded(candidate.producer_id, candidate.partition, span, SpanEnd.CENSUS, None))
    assert end_of(world.topic.published[-1]).how == "absorbed"


def next_transaction(world: LedgerWorld, candidate: SpanCandidate, *, epoch: int, marker_epoch: int) -> None:
    """Data of the producer joins what hangs, and a COMMIT marker closes both."""
    world.admin.write(candidate.partition, candidate.producer_id, epoch)
    spec = MarkerSpec(candidate.partition, candidate.producer_id, marker_epoch, 0, commit=True)
    assert world.admin.mark(spec) is None


ABSORBED = EndKind.ABSORBED, EndedBy.NEXT_TRANSACTION
JOINED = {
    "the next transaction": (1, 1, ABSORBED),
    "one whose end raises the epoch, or that the coordinator aborts": (1, 2, ABSORBED),
    "of an old client, under the same epoch": (0, 0, (EndKind.COMMITTED, EndedBy.UNKNOWN)),
    "more data of the same epoch, and a coordinator ends it": (0, 1, (EndKind.COMMITTED, EndedBy.COORDINATOR)),
}


@pytest.mark.parametrize("by_check", [False, True], ids=["by a census", "by a check"])
@pytest.mark.parametrize(("epoch", "marker_epoch", "end"), JOINED.values(), ids=JOINED.keys())
def test_what_joined_the_data_between_two_looks_decides_whether_it_is_absorbed(
    epoch: int, marker_epoch: int, end: tuple[EndKind, EndedBy], *, by_check: bool
) -> None:
    world = LedgerWorld()
    candidate = world.hang()
    world.batch(candidate)
    world.admin.transactions["checkout-1"].start_ms = world.now_ms  # the next transaction has begun
    next_transaction(world, candidate, epoch=epoch, marker_epoch=marker_epoch)
    if by_check:
        world.batch(after_ms=LOOK_AGAIN_MS)
        world.batch(after_ms=LOG_SHOWS_MS)
    else:
        world.batch(SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.CENSUS, None))
    found = end_of(world.topic.published[-1])
    assert (found.how, found.by, found.marker_offset) == (*end, 2)


def test_a_next_transaction_that_did_not_write_there_has_absorbed_nothing() -> None:
    """An administrator ends the hang, and then the producer goes on."""
    world = LedgerWorld()
    candidate = world.hang()
    world.batch(candidate)
    marked(world, candidate, False)
    next_transaction(world, candidate, epoch=1, marker_epoch=1)
    world.batch(SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.CENSUS, None))
    found = end_of(world.topic.published[-1])
    assert (found.how, found.by, found.marker_offset) == (EndKind.ABORTED, EndedBy.ADMINISTRATOR, 1)


def test_an_end_that_only_a_check_shows_is_read_too() -> None:
    """A hang above another one: its end moves no last stable offset."""
    world = LedgerWorld()
    candidate = world.hang()
    world.batch(candidate)
    marked(world, candidate, True)
    world.batch(after_ms=LOOK_AGAIN_MS)
    world.batch(after_ms=LOG_SHOWS_MS)
    assert end_of(world.topic.published[-1]).how == "committed"


SLOW_MS = 60


@pytest.mark.parametrize("slow_ms", [SLOW_MS, 2 * END_BUDGET_MS])
def test_many_ends_at_once_are_all_read_in_as_many_batches_as_they_need(slow_ms: int) -> None:
    world = LedgerWorld()
    hangs = [world.hang(f"checkout-{number}") for number in range(20)]
    world.batch(*hangs)
    for candidate in hangs:
        marked(world, candidate, True)
        for _ in hangs:
            world.admin.before("closing_marker", lambda: setattr(world, "now_ms", world.now_ms + slow_ms))
    ends = [SpanEnded(one.producer_id, one.partition, one.span, SpanEnd.CENSUS, None) for one in hangs]
    world.batch(*ends)
    told = len(world.topic.published) - len(hangs)
    assert 0 < told < len(hangs)
    assert world.ledger.due_ms == 0, "the next batch goes on"
    for _ in hangs:
        world.batch()
    assert [end_of(one).how for one in world.topic.published[len(hangs) :]] == ["committed"] * len(hangs)
    assert world.ledger.due_ms == NEVER_MS


def test_an_end_that_no_log_shows_is_told_without_its_marker() -> None:
    world = LedgerWorld()
    candidate = world.hang()
    world.batch(candidate)
    marked(world, candidate, True)
    world.admin.partitions[candidate.partition].all_markers.clear()
    world.admin.before("closing_marker", lambda: setattr(world, "now_ms", world.now_ms + END_BUDGET_MS))
    world.batch(SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.CENSUS, None))
    assert world.admin.asked.count("closing_marker") == 1, "it had all the time"
    assert end_of(world.topic.published[-1]).how == "no_longer_open"


def claim(candidate: SpanCandidate, **changes: Any) -> IncidentEvent:
    at = candidate.partition
    place = {"topic": at.topic, "partition": at.partition, "topic_id": candidate.span.topic_id}
    found = an_event("e" * 32, producer_id=candidate.producer_id, cluster_id="cluster", **place, **changes)
    assert problem_of(found) is None
    return found


@pytest.mark.parametrize("start", [None, 0])
def test_the_evidence_of_a_claim_does_not_say_where_the_marker_is(start: int | None) -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    (reading,) = stage.admin.read_partitions([candidate.partition]).values()
    claimed = claim(candidate, txn_start_offset=start)
    above = replace(claimed.evidence, leader_epoch=reading.leader_epoch, end_before=(reading.end_before or 0) + 1)
    stage.log.records.append(replace(claimed, evidence=above))
    stage.batch()
    marked(stage, candidate, True, False)
    stage.batch(SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.CENSUS, None))
    assert end_of(stage.last()).how in {"no_longer_open", "committed", "refuted"}


def not_listed(candidate: SpanCandidate) -> SpanEnded:
    """What the state says after a round of the census without the partition."""
    return SpanEnded(candidate.producer_id, candidate.partition, candidate.span, SpanEnd.NOT_LISTED, None)


def test_a_partition_that_no_round_lists_is_deleted_only_if_reads_by_its_name_say_so() -> None:
    world = LedgerWorld()
    candidate = world.hang()
    world.batch(candidate)
    del world.admin.partitions[world.partition]
    world.batch(not_listed(candidate))
    for _ in range(ABSENCES_OF_A_DELETED_TOPIC - 1):
        assert world.topic.published[-1].is_open, "the answer of one broker is not enough"
        world.batch(after_ms=LOG_SHOWS_MS)
    assert end_of(world.topic.published[-1]).how == "partition_gone"


def test_a_hang_that_no_round_lists_because_its_topic_is_hidden_stays_open_and_its_end_is_read_later() -> None:
    world = LedgerWorld()
    candidate = world.hang()
    world.batch(candidate)
    world.admin.problems[world.partition] = "TOPIC_AUTHORIZATION_FAILED"
    world.batch(not_listed(candidate))
    for _ in range(2 * ABSENCES_OF_A_DELETED_TOPIC):
        world.batch(after_ms=LOOK_AGAIN_MS)
    assert world.topic.published[-1].is_open
    del world.admin.problems[world.partition]
    world.batch(candidate)
    assert len({event.incident_id for event in world.topic.published}) == 1
    marked(world, candidate, False)
    for _ in range(2):
        world.batch(after_ms=LOOK_AGAIN_MS)
    assert end_of(world.topic.published[-1]).how == "aborted"
