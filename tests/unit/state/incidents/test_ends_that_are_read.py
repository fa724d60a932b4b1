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
from txnwatch.state.model.incident import IncidentEvent, Resolution
from txnwatch.state.model.ports import MarkerSpec
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
