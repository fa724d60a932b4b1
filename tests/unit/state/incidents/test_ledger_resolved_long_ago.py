"""What ended long ago: only the fact that it was published is kept, and that is enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from support.facts import START_MS, a_marker
from support.incidents import OPEN_SINCE_MS, a_life, an_event, id_of
from support.ledger_world import HOUR_MS, LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.abort_protocol import HOUR_MS as BUDGET_MS
from txnwatch.state.incidents.confirm import GONE_MS
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.model.facts import Joined
from txnwatch.state.model.findings import SpanCandidate, StrayWrite, TransactionCandidate, TransactionMoved
from txnwatch.state.model.incident import KEPT_MS, IncidentEvent
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import Verdict

LONG_AFTER_MS = OPEN_SINCE_MS + KEPT_MS + HOUR_MS


@pytest.fixture
def world() -> LedgerWorld:
    return LedgerWorld()


def kept(ledger: RunningLedger) -> list[str]:
    return [event.incident_id for event in ledger.incidents]


def delivered(world: LedgerWorld) -> list[tuple[str, int]]:
    """Whatever was sent to the topic, the same event twice too."""
    return [(event.status, event.sequence) for events in world.topic.tries for event in events]


def long_after(world: LedgerWorld, *, restarted: bool = False) -> None:
    world.batch(after_ms=KEPT_MS)
    if restarted:
        world.restart()
    world.batch(after_ms=HOUR_MS)
    assert kept(world.ledger) == []


def test_ended_incidents_are_kept_for_longer_than_the_budget_of_aborts_counts() -> None:
    assert KEPT_MS > BUDGET_MS


def test_an_end_is_kept_for_a_day_and_what_is_open_for_as_long_as_it_is(world: LedgerWorld) -> None:
    going_on = world.hang("going-on")
    candidate = world.hang()
    world.batch(going_on, candidate)
    world.batch(world.abort(candidate))
    world.batch(after_ms=KEPT_MS - 1)
    assert len(kept(world.ledger)) == 2
    world.batch(after_ms=HOUR_MS)
    assert kept(world.ledger) == [world.topic.published[0].incident_id]
    assert [event.transactional_id for event in world.ledger.open_incidents] == ["going-on"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_span_that_hangs_again_long_after_its_end_is_another_incident(world: LedgerWorld, *, restarted: bool) -> None:
    candidate = world.hang()
    world.batch(candidate)
    row = world.admin.partitions[world.partition].producers[candidate.producer_id]
    world.batch(world.abort(candidate))
    long_after(world, restarted=restarted)
    world.admin.partitions[world.partition].producers[candidate.producer_id] = row  # an election took the marker away
    world.batch(candidate)
    assert [(event.sequence, event.status) for event in world.topic.published] == [
        (1, "opened"),
        (2, "resolved"),
        (1, "opened"),
    ]
    assert len({event.incident_id for event in world.topic.published}) == 2


def a_stray(world: LedgerWorld, candidate: SpanCandidate) -> StrayWrite:
    joined = Joined(candidate.span.start_offset, 0, 9, 1, a_marker(12, epoch=1))
    topic_id = candidate.span.topic_id
    return StrayWrite(candidate.producer_id, world.partition, topic_id, joined, candidate.view, START_MS, START_MS)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stray_write_that_is_emitted_again_is_not_published_again(world: LedgerWorld, *, restarted: bool) -> None:
    stray = a_stray(world, world.hang())
    world.batch(stray)
    long_after(world, restarted=restarted)
    world.batch(stray)
    assert delivered(world) == [("opened", 1), ("resolved", 2)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_transaction_that_is_emitted_again_is_not_published_again(world: LedgerWorld, *, restarted: bool) -> None:
    view = world.hang().view
    owner = world.admin.begin("slow", world.partition)
    assert view is not None
    view = msgspec.structs.replace(view, state=S.ONGOING, transactional_id="slow", start_ms=owner.start_ms)
    late = TransactionCandidate(Verdict.LATE, owner.producer_id, view, 1_500, 9, world.now_ms, world.now_ms)
    moved = TransactionMoved(
        owner.producer_id, Verdict.LATE, view, msgspec.structs.replace(view, state=S.PREPARE_ABORT)
    )
    world.batch(late)
    world.admin.end("slow", commit=False)
    world.batch(moved)
    long_after(world, restarted=restarted)
    world.batch(late)
    world.batch(moved)
    assert delivered(world) == [("opened", 1), ("resolved", 2)]


def test_a_topic_of_years_is_read_without_keeping_it() -> None:
    memory, most = IncidentStore("cluster"), 0

    def topic() -> Iterator[IncidentEvent]:
        nonlocal most
        for number in range(1_000):
            most = max(most, len(memory.known))
            yield from a_life(f"over-{number}")
            yield from a_life(f"only the end-{number}")[2:]
        yield an_event("open")

    memory.remember(topic(), LONG_AFTER_MS)
    assert list(memory.known) == [id_of("open")]
    assert most <= 1
    for name in ("over-7", "only the end-7"):
        assert memory.unused(id_of(name)) != id_of(name)
    assert memory.unused(id_of("never seen")) == id_of("never seen")
    assert memory._on_topic.keys() == {id_of("open")}


def test_a_record_behind_a_forgotten_end_proves_nothing_and_opens_nothing() -> None:
    opened, later, over = a_life("one")
    memory = IncidentStore("cluster")
    memory.remember([opened, later, over], LONG_AFTER_MS)
    for event in (opened, later, over, replace(opened, sequence=over.sequence)):
        taken = memory.take(event, LONG_AFTER_MS)
        assert taken is not None
        assert not taken.is_next
    assert memory.known == {}
    assert memory.sequence(id_of("one")) == over.sequence


def test_an_end_that_the_topic_has_not_got_yet_is_not_forgotten(world: LedgerWorld) -> None:
    log = SharedLog()
    ledger = world.another(log)
    candidate = world.hang()
    ledger.on_batch([candidate])
    ledger.on_batch([])
    log.is_away = True
    ledger.on_batch([world.abort(candidate)])
    for _ in range(3):
        world.now_ms += KEPT_MS
        ledger.on_batch([])
        assert len(ledger.incidents) == 1
    log.is_away = False
    for _ in range(3):
        world.now_ms += HOUR_MS
        ledger.on_batch([])
    assert [event.status for event in log.published] == ["opened", "resolved"]
    assert ledger.incidents == []


def test_a_sink_that_missed_an_end_for_longer_than_it_is_remembered_shows_it_no_more(world: LedgerWorld) -> None:
    going_on = world.hang("going-on")
    candidate = world.hang()
    world.batch(going_on, candidate)
    world.redis.is_away = True
    world.batch(world.abort(candidate))
    world.restart()  # what waited for the sink is gone with the process
    world.now_ms += 2 * KEPT_MS
    world.restart()
    world.redis.is_away = False
    world.batch()
    assert [event.transactional_id for event in world.redis.open_incidents] == ["going-on"]


def test_a_sink_that_was_emptied_gets_what_is_open_and_what_ended_within_the_day(world: LedgerWorld) -> None:
    old, recent = world.hang("old"), world.hang("recent")
    world.batch(old)
    world.batch(world.abort(old))
    world.batch(after_ms=KEPT_MS)
    going_on = world.hang("going-on")
    world.batch(recent, going_on)
    world.batch(world.abort(recent), going_on)
    world.redis.latest.clear()
    world.redis.is_emptied = True
    world.batch(after_ms=HOUR_MS)
    found = {event.transactional_id: event.status for event in world.redis.latest.values()}
    assert found == {"recent": "resolved", "going-on": "opened"}


def test_candidates_without_an_answer_are_dropped_once_they_are_no_longer_emitted(world: LedgerWorld) -> None:
    candidates = [world.hang(f"checkout-{number}") for number in range(20)]
    world.admin.problems[world.partition] = "NOT_LEADER_OR_FOLLOWER"
    world.batch(*candidates)
    world.batch(*candidates, after_ms=GONE_MS - 1)
    assert len(world.reports) == 20, "each once for as long as it is reported"
    world.batch(world.hang("another"), after_ms=GONE_MS)
    assert len(world.ledger.ledger.answers.said.problems) == 1
