"""The events topic of an abort by hand, between records of watches and of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from support.heartbeats import NOW_MS
from support.incidents import an_event
from support.shared_log import SharedLog
from txnwatch.sinks.abort import run_abort
from txnwatch.sinks.abort.run_abort import KafkaOperatorsTopic
from txnwatch.state.incidents.claims import ROOM
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import (
    SPENT_SEQUENCE,
    Action,
    Decision,
    IncidentEvent,
    Initiator,
    span_incident_id,
    updated,
)


def the_first_id(event: IncidentEvent) -> IncidentEvent:
    assert event.span is not None
    topic_id, partition, producer_id = event.span
    start = event.txn_start_offset or 0
    return replace(
        event, incident_id=span_incident_id(event.cluster_id, topic_id, partition.partition, producer_id, start)
    )


OPENED = the_first_id(an_event())


class Log(SharedLog):
    """A topic that is written and read; `before` is called before each write."""

    def __init__(self, *records: TopicRecord) -> None:
        super().__init__()
        self.records.extend(records)
        self.before: Callable[[], None] = lambda: None
        self._next = self.reader_from_start()
        self.name = "topic txnwatch.events"

    def reader_from_start(self) -> Callable[[], Iterable[TopicRecord]]:
        position = 0

        def new_events() -> Iterable[TopicRecord]:
            nonlocal position
            found, position = self.records[position:], len(self.records)
            return found

        return new_events

    def history(self) -> Iterable[TopicRecord]:
        return self._next()

    new_records = history

    def publish(self, events: Sequence[IncidentEvent]) -> None:
        before, self.before = self.before, lambda: None
        before()
        self.records.extend(events)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_abort, "PATIENCE_S", 0.05)
    monkeypatch.setattr(run_abort, "PAUSE_S", 0.01)


def on(log: Log) -> KafkaOperatorsTopic:
    return KafkaOperatorsTopic(log, log)


def ended(event: IncidentEvent) -> IncidentEvent:
    return replace(event, status="resolved", sequence=event.sequence + 1)


OTHERS = {
    "nothing": (),
    "its end": (OPENED, ended(OPENED)),
    "another start": (replace(OPENED, txn_start_offset=OPENED.txn_start_offset + 1),),
    "another cluster": (replace(OPENED, cluster_id="another"),),
    "a sequence without room": (replace(OPENED, sequence=SPENT_SEQUENCE - ROOM),),
    "another verdict": (replace(OPENED, verdict="stray_write", severity="warning"),),
}


@pytest.mark.parametrize("records", OTHERS.values(), ids=OTHERS.keys())
def test_no_incident_of_a_watch_is_found_among(records: tuple[IncidentEvent, ...]) -> None:
    assert on(Log(*records)).open_incident(OPENED) is None


def test_the_incident_with_the_computed_id_counts_before_one_with_any_other_id() -> None:
    forged = replace(OPENED, incident_id="f" * 32, time_ms=10**15, sequence=900)
    assert on(Log(forged, OPENED)).open_incident(OPENED) == OPENED
    opened_again = replace(OPENED, incident_id="e" * 32, sequence=1)
    assert on(Log(forged, opened_again)).open_incident(OPENED) == opened_again, "the last, as a command shows it"


def test_an_announcement_counts_only_if_it_is_the_first_with_its_sequence() -> None:
    log, ours = Log(OPENED), updated(OPENED, NOW_MS)
    on(log).publish(ours)
    assert log.records == [OPENED, ours]
    log = Log(OPENED)
    log.before = lambda: log.records.append(replace(ours, hidden_records=7))
    with pytest.raises(SinkError, match="came first; run the command again"):
        on(log).publish(ours)


@pytest.mark.parametrize("later", [ended(OPENED), updated(updated(OPENED, 1), 2)], ids=["an end", "an update"])
def test_nothing_is_written_behind_a_record_that_is_read_before_the_announcement(later: IncidentEvent) -> None:
    log = Log(OPENED)
    topic = on(log)
    log.records.append(later)
    with pytest.raises(SinkError, match="came first"):
        topic.publish(updated(OPENED, NOW_MS))
    assert log.records == [OPENED, later]


def test_after_the_announcement_the_end_of_a_watch_is_enough() -> None:
    log = Log(OPENED)
    topic, ours = on(log), updated(OPENED, NOW_MS)
    topic.publish(ours)
    end = ended(ours)
    log.records.append(end)
    topic.publish(updated(ours, NOW_MS))
    assert log.records == [OPENED, ours, end]


def test_an_end_that_comes_between_reading_and_writing_the_result_is_no_problem() -> None:
    log = Log(OPENED)
    topic, ours = on(log), updated(OPENED, NOW_MS)
    topic.publish(ours)
    log.before = lambda: log.records.append(ended(ours))
    topic.publish(updated(ours, NOW_MS))
    topic.publish(updated(ours, NOW_MS))
    assert len(log.records) == 4, "behind an end that it has read, it writes nothing"


def test_a_record_of_another_cluster_is_neither_first_nor_an_end() -> None:
    log, ours = Log(OPENED), updated(OPENED, NOW_MS)
    topic = on(log)
    log.records.append(replace(ours, cluster_id="another"))
    topic.publish(ours)
    log.records.append(replace(ended(ours), cluster_id="another"))
    topic.publish(updated(ours, NOW_MS))
    assert log.records[-1] == updated(ours, NOW_MS)


def test_an_announcement_that_cannot_be_read_back_is_an_error() -> None:
    log = Log(OPENED)
    topic = KafkaOperatorsTopic(Log(), log)
    with pytest.raises(SinkError, match="could not be read back"):
        topic.publish(updated(OPENED, NOW_MS))


def test_without_the_right_to_read_the_topic_is_only_written() -> None:
    log = Log(OPENED)
    topic = KafkaOperatorsTopic(log, None)
    assert topic.open_incident(OPENED) is None
    topic.publish(updated(OPENED, NOW_MS))
    assert len(log.records) == 2


def test_an_action_by_hand_gets_the_principal_of_the_connection_and_that_of_a_watch_keeps_its_own() -> None:
    by_hand = Action(decision=Decision.FENCE, by="me@host", at_ms=1, initiator=Initiator.OPERATOR)
    of_a_watch = Action(decision=Decision.REFUSED, by="watch", principal="User:watcher", at_ms=1)
    for principal in ("User:alice", None):
        log = Log()
        topic = KafkaOperatorsTopic(log, None, principal)
        for number, action in enumerate((None, by_hand, of_a_watch)):
            topic.publish(replace(OPENED, incident_id=f"{number:032x}", action=action))
        assert [event.action.principal if event.action else "-" for event in log.records] == [
            "-",
            principal,
            "User:watcher",
        ]
