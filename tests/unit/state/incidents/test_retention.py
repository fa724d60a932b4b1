"""What ended leaves the topic after its retention, and the memory with it; what is open nobody can take away."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from support.incidents import OPEN_SINCE_MS, a_life, an_event, id_of
from support.ledger_world import HOUR_MS, LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.delivery.event_log import SkippedRecords
from txnwatch.state.incidents.claims import SEEN_OVER_MS
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.incidents.ledger import AT_A_TIME, PAUSE_MS, Retention
from txnwatch.state.incidents.wanted import Bury, Wanted, carry_out
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import KEPT_MS, RETENTION_MS, IncidentEvent, Overwritten
from txnwatch.watch.listening import EventListener

DAY_MS = 24 * HOUR_MS
OVER_MS = OPEN_SINCE_MS + RETENTION_MS + HOUR_MS


class Topic:
    """Where tombstones go."""

    def __init__(self) -> None:
        self.buried: list[str] = []
        self.is_away = False

    def tidy(self, retention: Retention, memory: IncidentStore, now_ms: int) -> None:
        carry_out(retention.on_tidy(memory, now_ms), self._answer)

    def _answer(self, wanted: Wanted[Any]) -> bool:
        assert isinstance(wanted, Bury)
        if not self.is_away:
            self.buried.extend(wanted.incident_ids)
        return not self.is_away


def test_an_end_gets_a_tombstone_after_the_retention_and_is_forgotten() -> None:
    memory, topic = IncidentStore("cluster"), Topic()
    retention = Retention()
    memory.remember([*a_life("over"), an_event("open")], OVER_MS)
    topic.tidy(retention, memory, OVER_MS)
    assert topic.buried == [], "this process has known it for a moment only"
    topic.tidy(retention, memory, OVER_MS + SEEN_OVER_MS)
    assert topic.buried == [id_of("over")]
    assert not memory.is_used(id_of("over")), "its id may be used again"
    assert memory.is_used(id_of("open"))
    topic.tidy(retention, memory, OVER_MS + 2 * SEEN_OVER_MS)
    assert topic.buried == [id_of("over")]


def test_nothing_goes_before_the_retention_is_over() -> None:
    memory, topic = IncidentStore("cluster"), Topic()
    early_ms = OPEN_SINCE_MS + KEPT_MS + DAY_MS
    memory.remember(a_life("over"), early_ms)
    topic.tidy(Retention(), memory, early_ms + SEEN_OVER_MS)
    assert topic.buried == []
    topic.tidy(Retention(KEPT_MS), memory, early_ms + SEEN_OVER_MS)
    assert topic.buried == [id_of("over")], "the retention is a setting"


def test_a_topic_that_is_away_gets_its_tombstones_later() -> None:
    memory, topic = IncidentStore("cluster"), Topic()
    retention = Retention()
    memory.remember(a_life("over"), OVER_MS)
    topic.is_away = True
    topic.tidy(retention, memory, OVER_MS + SEEN_OVER_MS)
    assert memory.is_used(id_of("over")), "what the topic may still hold is not forgotten"
    topic.is_away = False
    topic.tidy(retention, memory, OVER_MS + SEEN_OVER_MS + PAUSE_MS)
    assert topic.buried == [id_of("over")]


def test_many_go_in_parts() -> None:
    memory, topic = IncidentStore("cluster"), Topic()
    memory.remember((event for number in range(AT_A_TIME + 5) for event in a_life(str(number))[2:]), OVER_MS)
    retention = Retention()
    topic.tidy(retention, memory, OVER_MS + SEEN_OVER_MS)
    assert len(topic.buried) == AT_A_TIME
    topic.tidy(retention, memory, OVER_MS + SEEN_OVER_MS + 5_000)
    assert len(set(topic.buried)) == AT_A_TIME + 5


def test_the_incident_of_another_cluster_is_left_to_its_own_watch() -> None:
    memory, topic = IncidentStore("cluster"), Topic()
    memory.remember(a_life("over", cluster_id="another"), OVER_MS)
    topic.tidy(Retention(), memory, OVER_MS + SEEN_OVER_MS)
    assert topic.buried == []


def test_a_ledger_removes_what_ended_and_opens_a_new_hang_of_the_same_span() -> None:
    world, topic = LedgerWorld(), Topic()
    world.ledger.bury = topic.buried.extend
    candidate = world.hang()
    world.batch(candidate)
    row = world.admin.partitions[world.partition].producers[candidate.producer_id]
    world.batch(world.abort(candidate))
    for _ in range(9):
        world.batch(after_ms=DAY_MS)
    (incident_id,) = {event.incident_id for event in world.topic.published}
    assert topic.buried == [incident_id]
    world.admin.partitions[world.partition].producers[candidate.producer_id] = row  # an election took the marker away
    world.batch(candidate)
    assert [event.incident_id for event in world.ledger.open_incidents] == [incident_id]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_tombstone_of_an_open_incident_ends_nothing_and_its_event_is_published_again(*, restarted: bool) -> None:
    world, log = LedgerWorld(), FoulLog()
    ledger = world.another(log)
    candidate = world.hang()
    ledger.on_batch([candidate])
    (opened,) = log.events
    log.put(Overwritten(opened.incident_id))
    if restarted:
        ledger = world.another(log)
    for _ in range(3):
        ledger.on_batch([candidate])  # the state emits it at every barrier: a restarted ledger finds it anew
    assert [event.incident_id for event in ledger.open_incidents] == [opened.incident_id]
    assert log.records[-1] == opened, "compaction keeps what stands last"
    assert log.events == [opened, opened], "once for one tombstone"


def test_two_instances_that_read_a_tombstone_do_not_publish_for_ever() -> None:
    world, log = LedgerWorld(), FoulLog()
    ledgers = [world.another(log) for _ in range(2)]
    ledgers[0].on_batch([world.hang()])
    ledgers[1].on_batch([])
    log.put(*[Overwritten(log.events[0].incident_id)] * 500)
    for _ in range(4):
        for ledger in ledgers:
            ledger.on_batch([])
    assert len(log.events) == 2, "the second reads that the first has published it again"


def test_a_tombstone_of_what_ended_is_not_answered() -> None:
    world, log = LedgerWorld(), FoulLog()
    ledger, candidate = world.another(log), world.hang()
    ledger.on_batch([candidate])
    ledger.on_batch([world.abort(candidate)])
    log.put(Overwritten(log.events[0].incident_id))
    ledger.on_batch([])
    assert [event.status for event in log.events] == ["opened", "resolved"]


class FoulLog(SharedLog):
    """An events topic that others write too."""

    @property
    def events(self) -> list[IncidentEvent]:
        return [record for record in self.records if isinstance(record, IncidentEvent)]

    @property
    def compacted(self) -> dict[str, IncidentEvent]:
        """Not compacted yet: everything is read."""
        return {str(number): record for number, record in enumerate(self.records)}

    def put(self, *records: IncidentEvent | Overwritten) -> None:
        self.records.extend(records)  # type: ignore[arg-type]


def test_records_that_are_no_events_are_counted_and_logged_in_a_few_lines() -> None:
    reports: list[str] = []
    now_ms = 0
    listening = EventListener(SkippedRecords(reports.append, lambda: now_ms))
    bad = [BadEventError(SkipReason.UNDECODABLE, f"t-0@{number}: odd", id_of("x")) for number in range(2_000)]
    assert list(listening.events_of(bad)) == [Overwritten(id_of("x"))] * 2_000
    assert reports == ["skipped 2000 records of the events topic (undecodable), the last: t-0@1999: odd"]
    assert listening.passed_over.counts == {SkipReason.UNDECODABLE: 2_000}
    for _ in range(7_200):  # an hour of batches, each with a bad record
        now_ms += 500
        list(listening.events_of(bad[:1]))
    assert len(reports) == 6


def test_one_that_comes_long_after_is_logged_at_once() -> None:
    reports: list[str] = []
    times = iter(range(0, 10**9, 10_000_000))
    clock = [0]
    records = SkippedRecords(reports.append, lambda: clock[0])
    for clock[0] in itertools.islice(times, 3):
        records.take(BadEventError(SkipReason.UNSIGNED, "t-0@1: no signature"))
        records.report_when_due()
        records.report_when_due()
    assert reports == ["skipped a record of the events topic (unsigned), the last: t-0@1: no signature"] * 3
