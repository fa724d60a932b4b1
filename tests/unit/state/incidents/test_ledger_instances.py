"""Two instances on one events topic: a consumer that keeps `ce_id` sees one life of each incident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fake_lease import FakeLease
from support.incidents import an_update
from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.evidence.ending import LOOK_AGAIN_MS, no_longer_open
from txnwatch.state.incidents.book import IncidentStore
from txnwatch.state.incidents.claims import ROOM
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.incident import SPENT_SEQUENCE, IncidentEvent, Overwritten, resolved


class Pair:
    def __init__(self) -> None:
        self.world = LedgerWorld()
        self.log = SharedLog()
        self.is_topic_away = False
        self.one, self.two = self.world.another(self.log), self.world.another(self.log)

    def both(self, *emitted: Finding, after_ms: int = 500) -> None:
        self.step(self.one, *emitted, after_ms=after_ms)
        self.step(self.two, *emitted, after_ms=0)

    def step(self, ledger: RunningLedger, *emitted: Finding, after_ms: int = 500) -> None:
        self.world.now_ms += after_ms
        ledger.on_batch(emitted)

    def at_once(self, *emitted: Finding, other: tuple[Finding, ...] | None = None) -> None:
        """Both publish before either has read the other's event."""
        listening = [ledger.new_records for ledger in (self.one, self.two)]
        for ledger, findings in ((self.one, emitted), (self.two, emitted if other is None else other)):
            ledger.new_records = tuple
            self.step(ledger, *findings, after_ms=3)
        self.one.new_records, self.two.new_records = listening

    def published(self) -> list[tuple[int, str]]:
        return [(event.sequence, event.status) for event in self.log.published]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_an_instance_does_not_publish_an_event_of_another_instance_again(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.both(pair.world.abort(candidate))
    pair.both()
    assert pair.published() == [(1, "opened"), (2, "resolved")]
    assert len(pair.log.records) == 2
    assert pair.one.open_incidents == pair.two.open_incidents == []


def test_both_open_at_once_and_agree_on_the_first(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.at_once(candidate)
    assert [event.sequence for event in pair.log.records] == [1, 1]
    assert pair.log.records[0] != pair.log.records[1], "their clocks differ"
    pair.both()
    first = pair.log.records[0].event_id
    assert [event.event_id for event in (*pair.one.open_incidents, *pair.two.open_incidents)] == [first, first]
    pair.both(pair.world.abort(candidate))
    assert pair.published() == [(1, "opened"), (2, "resolved")]


def both_go_on_at_once_and_one_does_not_see_the_end(pair: Pair) -> None:
    """For the same hang, the first instance makes an update, and the second one its end, both with the sequence 2."""
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.both()
    pair.world.admin.plain(pair.world.partition, 50)
    pair.world.now_ms += LOOK_AGAIN_MS
    ended = pair.world.abort(candidate)
    pair.world.admin.write(pair.world.partition, candidate.producer_id)
    producers = pair.world.admin.partitions[pair.world.partition].producers
    row = producers[candidate.producer_id]
    producers[candidate.producer_id] = row._replace(txn_start_offset=candidate.span.start_offset)
    pair.log.is_away = pair.is_topic_away
    pair.at_once(other=(ended,))
    producers[candidate.producer_id] = row._replace(txn_start_offset=None)


def test_an_end_that_a_consumer_would_drop_is_published_again_behind_the_other_event(pair: Pair) -> None:
    both_go_on_at_once_and_one_does_not_see_the_end(pair)
    assert [(event.sequence, event.status) for event in pair.log.records[1:]] == [(2, "updated"), (2, "resolved")]
    pair.both()
    pair.both()
    assert pair.published() == [(1, "opened"), (2, "updated"), (3, "resolved")]
    assert pair.log.compacted[pair.log.records[0].incident_id].status == "resolved"
    assert pair.one.open_incidents == pair.two.open_incidents == []


def test_an_event_that_waits_for_the_topic_may_never_get_there_and_its_id_has_another_event(pair: Pair) -> None:
    """So no target gets an event before the topic has it: a consumer that keeps `ce_id` would drop the end."""
    pair.is_topic_away = True
    both_go_on_at_once_and_one_does_not_see_the_end(pair)
    assert (pair.one.topic.waiting, pair.two.topic.waiting) == (1, 1)
    pair.log.is_away = False
    for ledger in (pair.two, pair.one):
        pair.step(ledger, after_ms=60_000)
    pair.both()
    assert pair.published() == [(1, "opened"), (2, "resolved")]
    assert (pair.one.topic.waiting, pair.two.topic.waiting) == (0, 0)
    mirrored = pair.world.redis.published
    assert mirrored
    assert [event for event in mirrored if event not in pair.log.records] == []


def test_a_waiting_event_is_withdrawn_once_another_instance_has_published_it(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.log.is_away = True
    pair.step(pair.two, candidate)
    assert pair.two.topic.waiting == 1
    pair.log.is_away = False
    pair.step(pair.one, candidate)
    pair.step(pair.one, pair.world.abort(candidate))
    for _ in range(5):
        pair.step(pair.two, after_ms=60_000)
    assert [(event.sequence, event.status) for event in pair.log.records] == [(1, "opened"), (2, "resolved")]
    assert pair.two.topic.waiting == 0


def test_after_an_older_event_the_newer_one_is_published_again(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    opened = pair.log.records[0]
    pair.step(pair.one, pair.world.abort(candidate))
    pair.log.records.append(opened)
    pair.both()
    pair.both()
    assert pair.log.compacted[opened.incident_id].status == "resolved"
    assert pair.published() == [(1, "opened"), (2, "resolved")]
    before = len(pair.log.records)
    for _ in range(5):
        pair.both()
    assert len(pair.log.records) == before, "and that is the end of it"


def test_events_of_another_instance_reach_our_redis(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    pair.world.redis.published.clear()
    pair.step(pair.two)
    assert [event.event_id for event in pair.world.redis.published] == [pair.log.records[0].event_id]


def test_an_instance_that_joins_later_knows_everything(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    late = pair.world.another(pair.log)
    pair.step(late, candidate)
    assert pair.published() == [(1, "opened")]


def test_after_reading_the_topic_from_its_beginning_the_newest_event_counts(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    pair.step(pair.one, pair.world.abort(candidate))
    late = pair.world.another(pair.log)
    late.remember([*pair.log.records, pair.log.records[0]])
    assert late.open_incidents == []


def test_of_two_events_of_one_sequence_the_first_on_the_topic_is_remembered(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.at_once(candidate)
    first, second = pair.log.records
    assert (first.sequence, first.event_id) == (second.sequence, second.event_id)
    memory = IncidentStore("cluster")
    memory.remember(pair.log.records, pair.world.now_ms)
    assert memory.open_incidents == [first]


def test_an_end_that_another_event_of_its_sequence_came_to_stand_behind_is_what_compaction_keeps(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.both()
    opened = pair.log.records[0]
    pair.step(pair.two, pair.world.abort(candidate))
    pair.log.records.append(an_update(opened, pair.world.now_ms, severity="warning"))  # the other publishes it too late
    for _ in range(3):
        pair.both()
    assert pair.log.compacted[opened.incident_id].status == "resolved"
    assert pair.world.another(pair.log).open_incidents == []
    assert pair.published() == [(1, "opened"), (2, "resolved")]
    before = len(pair.log.records)
    pair.both()
    assert len(pair.log.records) == before


@pytest.mark.parametrize("after", [(), (3,), (3, 4), (2**31 - 2,)], ids=["alone", "one more", "two more", "id spent"])
def test_an_end_behind_others_of_its_sequence_follows_all_that_is_new(pair: Pair, after: tuple[int, ...]) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    pair.step(pair.one)
    opened, end, read = pair.log.records[0], pair.world.abort(candidate), pair.one.new_records
    assert read is not None

    def late() -> list[IncidentEvent | Overwritten]:
        """What another writer writes comes after this read, and before the end of this process."""
        found, pair.one.new_records = [*read()], read
        update = an_update(opened, pair.world.now_ms)
        pair.log.records.extend(replace(update, sequence=number) for number in (2, *after))
        return found

    pair.one.new_records = late
    for emitted in ((end,), (), ()):
        pair.step(pair.one, *emitted)
    last = pair.log.compacted[opened.incident_id]
    assert last.resolution is not None
    assert (last.status, last.resolution.how) == ("resolved", "aborted")
    assert last.sequence > max((2, *(number for number in after if number < SPENT_SEQUENCE - ROOM)))


def test_an_incident_that_another_writer_has_ended_causes_no_abort_and_opens_again_while_it_hangs(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.world.admin.init("checkout-1")
    (known,) = pair.one.open_incidents
    end = resolved(known, pair.world.now_ms, no_longer_open(pair.world.now_ms, "as the other sees it"))
    pair.two.run(pair.two.ledger.publish_next(end))
    policy = AbortPolicy(after_ms=0)
    RunningAbort("on", policy, 1_000, pair.one, FakeLease(), "here", lambda: pair.world.now_ms).on_batch()
    for _ in range(3):
        pair.both(after_ms=LOOK_AGAIN_MS)
    assert pair.published() == [(1, "opened"), (2, "resolved"), (1, "opened")]
    assert pair.world.admin.markers == []
