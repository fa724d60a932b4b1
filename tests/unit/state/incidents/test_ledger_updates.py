"""A look at open incidents reports changes only, the affected groups, and an end that needs no marker."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.ledger_world import LedgerWorld
from txnwatch.state.evidence.ending import LOOK_AGAIN_MS, SECOND_LOOK_MS
from txnwatch.state.incidents.ledger import TIDY_MS
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, SpanStart, TopicPartition


@pytest.fixture
def world() -> LedgerWorld:
    return LedgerWorld()


def sequences(world: LedgerWorld) -> list[tuple[int, str]]:
    return [(event.sequence, event.status) for event in world.topic.published]


def groups_of(event: IncidentEvent) -> list[tuple[str, str]]:
    return [(group.group_id, group.state) for group in event.consumer_groups]


def test_an_unchanged_hang_has_one_event_for_hours(world: LedgerWorld) -> None:
    candidate = world.hang()
    for _ in range(200):
        world.batch(candidate, after_ms=LOOK_AGAIN_MS)
    assert sequences(world) == [(1, "opened")]


def test_a_busy_partition_gets_an_update_at_every_tenfold(world: LedgerWorld) -> None:
    world.batch(world.hang())
    for _ in range(120):
        world.admin.plain(world.partition, 9)
        world.batch(after_ms=LOOK_AGAIN_MS)
    count = [event.hidden_records for event in world.topic.published]
    assert count == [1, 10, 100, 1000]
    assert sequences(world) == [(1, "opened"), (2, "updated"), (3, "updated"), (4, "updated")]


def test_groups_at_risk_are_in_the_opened_event_and_stopped_groups_cause_an_update(world: LedgerWorld) -> None:
    world.groups.commit("billing", world.partition, 0)
    world.batch(world.hang())
    assert groups_of(world.topic.published[0]) == [("billing", "at_risk")]
    world.admin.plain(world.partition)
    world.batch(after_ms=SECOND_LOOK_MS)
    assert sequences(world) == [(1, "opened"), (2, "updated")]
    update = world.topic.published[-1]
    assert groups_of(update) == [("billing", "stopped")]
    assert (update.hidden_records, update.lso_standing_ms) == (2, SECOND_LOOK_MS)
    world.admin.plain(world.partition)
    world.batch(after_ms=LOOK_AGAIN_MS)
    assert len(world.topic.published) == 2


def test_the_time_of_a_standing_last_stable_offset_survives_a_restart(world: LedgerWorld) -> None:
    world.batch(world.hang())
    world.restart()
    world.admin.plain(world.partition, 20)
    world.batch(after_ms=LOOK_AGAIN_MS)
    assert world.topic.published[-1].lso_standing_ms == LOOK_AGAIN_MS


def test_a_group_that_cannot_be_read_is_logged_once_and_removes_no_other(world: LedgerWorld) -> None:
    world.groups.commit("billing", world.partition, 0)
    world.groups.commit("secret", world.partition, 0)
    world.groups.hidden.add("secret")
    world.batch(world.hang())
    for _ in range(3):
        world.batch(after_ms=LOOK_AGAIN_MS)
    assert world.reports == ["the list of affected groups is incomplete: group secret is hidden"]
    assert groups_of(world.topic.published[0]) == [("billing", "at_risk")]


def test_the_group_whose_offsets_hang_is_in_the_opened_event_and_another_one_causes_an_update(
    world: LedgerWorld,
) -> None:
    (world.partition,) = world.admin.create_topic(CONSUMER_OFFSETS_TOPIC)
    candidate = world.hang()
    span = SpanStart(world.partition, candidate.producer_id, candidate.span.start_offset)
    world.groups.pend(span, "billing", TopicPartition("orders", 0))
    world.batch(candidate)
    assert waiting(world.topic.published[0]) == [("billing", ("orders-0",))]
    world.groups.pend(span, "audit", TopicPartition("orders", 1))
    world.batch(after_ms=SECOND_LOOK_MS)
    world.batch(after_ms=LOOK_AGAIN_MS)
    assert sequences(world) == [(1, "opened"), (2, "updated")]
    assert waiting(world.topic.published[-1]) == [("audit", ("orders-1",)), ("billing", ("orders-0",))]


def test_a_group_that_waits_stays_while_its_partition_cannot_be_read(world: LedgerWorld) -> None:
    (world.partition,) = world.admin.create_topic(CONSUMER_OFFSETS_TOPIC)
    candidate = world.hang()
    span = SpanStart(world.partition, candidate.producer_id, candidate.span.start_offset)
    world.groups.pend(span, "billing", TopicPartition("orders", 0))
    world.batch(candidate)
    world.groups.unread.add(span)
    for _ in range(2):
        world.admin.plain(world.partition, 1_000)
        world.batch(after_ms=LOOK_AGAIN_MS)
    assert sequences(world) == [(1, "opened"), (2, "updated")], "ten times as many records, and no other change"
    assert waiting(world.topic.published[-1]) == [("billing", ("orders-0",))]
    assert world.reports == [f"the list of affected groups is incomplete: {world.partition} was not read"]


def waiting(event: IncidentEvent) -> list[tuple[str, tuple[str, ...]]]:
    return [(group.group_id, group.partitions) for group in event.waiting_groups]


def test_groups_are_asked_for_only_while_an_incident_is_open(world: LedgerWorld) -> None:
    for _ in range(5):
        world.batch(after_ms=LOOK_AGAIN_MS)
    assert world.groups.asked == 0


def test_an_absorbed_span_causes_an_update_without_a_command(
    world: LedgerWorld,
) -> None:
    world.batch(world.hang())
    world.admin.now_ms = world.now_ms + 1_000
    world.admin.begin("checkout-1", world.partition)
    world.batch(after_ms=LOOK_AGAIN_MS)
    assert sequences(world) == [(1, "opened"), (2, "updated")]
    update = world.topic.published[-1]
    assert (update.transaction_state, update.suggested_command) == ("Ongoing", None)
    world.batch(after_ms=LOOK_AGAIN_MS)
    assert len(world.topic.published) == 2


@pytest.mark.parametrize("behind_ms", [1, 10_000, 3_600_000])
def test_a_hang_is_not_refuted_by_its_next_transaction_when_the_coordinators_clock_is_behind(
    world: LedgerWorld, behind_ms: int
) -> None:
    world.batch(world.hang())
    owner = world.admin.begin("checkout-1", world.partition)
    owner.start_ms = world.topic.published[0].open_since_ms - behind_ms
    for _ in range(3):
        world.batch(after_ms=LOOK_AGAIN_MS)
    assert sequences(world) == [(1, "opened"), (2, "updated")]
    assert world.topic.published[-1].suggested_command is None, "the marker of the next transaction will end it"


def test_an_owner_that_is_found_later_causes_an_update(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.admin.forget("checkout-1")
    world.batch(replace(candidate, view=None))
    assert world.topic.published[0].transactional_id is None
    world.batch(replace(candidate, view=None))
    world.batch(candidate)
    world.batch(candidate)
    assert [event.transactional_id for event in world.topic.published] == [None, "checkout-1"]


def test_a_sink_that_has_lost_everything_is_filled_again(world: LedgerWorld) -> None:
    world.batch(world.hang())
    world.redis.published.clear()
    world.redis.latest.clear()
    world.redis.is_emptied = True
    world.batch(after_ms=TIDY_MS)
    assert world.redis.published == world.topic.published
    assert world.reports == ["recording is empty and is filled again"]


def test_a_marker_that_only_a_coordinator_can_have_left_open_to_doubt_is_unknown(world: LedgerWorld) -> None:
    candidate = world.hang()
    world.batch(candidate)
    ended = world.abort(candidate)
    world.admin.problems["checkout-1"] = "COORDINATOR_LOAD_IN_PROGRESS"
    world.batch(ended)
    resolution = world.topic.published[-1].resolution
    assert resolution is not None
    assert (resolution.how, resolution.by) == ("aborted", "unknown")


def test_many_open_incidents_on_one_partition_cost_one_question(world: LedgerWorld) -> None:
    partitions = [world.partition, *world.admin.create_topic("more", 3)]
    for number, partition in enumerate(partitions * 5):
        world.admin.write(partition, producer_id=100 + number)
        world.batch(world.candidate_on(partition, 100 + number))
    world.batch(after_ms=LOOK_AGAIN_MS)
    before = world.groups.asked
    world.batch(after_ms=LOOK_AGAIN_MS)
    assert world.groups.asked == before + 1
    assert isinstance(partitions[0], TopicPartition)


def test_an_incident_on_a_topic_that_was_deleted_without_a_watcher_ends(world: LedgerWorld) -> None:
    world.batch(world.hang())
    del world.admin.partitions[world.partition]
    world.restart()
    count = len(world.published())
    for _ in range(2):
        world.batch(after_ms=LOOK_AGAIN_MS)
    assert len(world.published()) == count, "the answer of one broker is not enough"
    world.batch(after_ms=LOOK_AGAIN_MS)
    resolution = world.topic.published[-1].resolution
    assert resolution is not None
    assert (resolution.how, world.ledger.open_incidents) == ("partition_gone", [])


def test_an_incident_on_a_hidden_topic_stays_open(world: LedgerWorld) -> None:
    world.batch(world.hang())
    world.admin.problems[world.partition] = "TOPIC_AUTHORIZATION_FAILED"
    for _ in range(5):
        world.batch(after_ms=LOOK_AGAIN_MS)
    assert len(world.ledger.open_incidents) == 1
