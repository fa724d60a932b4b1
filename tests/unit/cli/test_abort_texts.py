"""What is said about a marker of txnwatch or of an administrator: a claim is a claim, and each end has one marker."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from support.facts import PRODUCER
from support.incidents import an_event, an_update
from txnwatch.cli import events_access
from txnwatch.cli.command_origin import read_published
from txnwatch.cli.explain_aborts import (
    MOST_CLAIMS,
    RECENT_MS,
    claim_text,
    claims_of,
    is_its_marker,
    is_last_by_hand,
    unclaimed_text,
)
from txnwatch.cli.explanation import end_text
from txnwatch.state.evidence.past_ends import PastEnd, past_ends
from txnwatch.state.model.errors import BadEventError, BrokerError, SkipReason
from txnwatch.state.model.incident import Action, Decision, IncidentEvent, Initiator, PublishedEvents
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.log.coordinator_log import LogRecord, history_of
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

NOW_MS = 1_700_000_000_000
ACTION = Action(
    decision=Decision.ABORT,
    by="ops@host",
    at_ms=NOW_MS - 60_000,
    marker_producer_epoch=2,
    marker_coordinator_epoch=0,
    initiator=Initiator.OPERATOR,
)
MARKER = Marker(offset=160, producer_epoch=2, commit=False, coordinator_epoch=0, timestamp_ms=NOW_MS - 59_000)


def claim(name: str = "a", **action: Any) -> IncidentEvent:
    return an_event(name, action=replace(ACTION, **action))


def test_the_newest_claims_of_the_last_day_are_taken_each_hang_once() -> None:
    told = [
        claim("old", at_ms=NOW_MS - RECENT_MS - 1),
        claim("dry", decision=Decision.DRY_RUN),
        an_event("none", action=None),
        an_event("whole", topic=None, partition=None, topic_id=None, txn_start_offset=None, action=ACTION),
        *(replace(claim(f"c{one}", at_ms=NOW_MS - one), txn_start_offset=one) for one in range(MOST_CLAIMS + 2)),
    ]
    found = claims_of([*told, an_update(told[-1], NOW_MS)], lambda _: True, NOW_MS)
    assert [one.txn_start_offset for one in found] == [0, 1, 2]
    again = replace(claim("by hand too", at_ms=NOW_MS), txn_start_offset=0)
    assert claims_of([*told, again], lambda _: True, NOW_MS)[0] == again
    assert claims_of(told, lambda one: one.partition == 99, NOW_MS) == []


def test_the_text_says_what_is_a_claim_and_what_the_log_has() -> None:
    said = (
        "The events topic says that `txnwatch abort` of 'ops@host' announced the ABORT marker for "
        f"orders-3@{claim().txn_start_offset} at "
    )
    confirmed = claim_text(claim(), MARKER)
    assert confirmed.startswith(said)
    assert "The log shows that it was ended so: the ABORT marker at offset 160" in confirmed
    assert confirmed.endswith("A marker does not name its writer.")
    assert "still open: nothing has ended it" in claim_text(claim(), None, is_open=True)
    assert "does not show its marker any more" in claim_text(claim(), None)
    assert claim_text(claim(), None, problem="NO_LEADER").endswith("; this could not be checked: NO_LEADER.")
    assert "the watcher 'ops@host'" in claim_text(claim(initiator=Initiator.WATCH), MARKER)
    assert "announced the COMMIT marker" in claim_text(claim(decision=Decision.COMMIT), None)


@pytest.mark.parametrize(
    "other", [{"commit": True}, {"producer_epoch": 3}, {"coordinator_epoch": 7}], ids=["kind", "epoch", "coordinator"]
)
def test_a_marker_of_another_kind_or_epoch_is_another_marker(other: dict[str, Any]) -> None:
    marker = Marker(
        **{
            "offset": 160,
            "producer_epoch": 2,
            "commit": False,
            "coordinator_epoch": 0,
            "timestamp_ms": NOW_MS,
            **other,
        }
    )
    assert is_its_marker(claim(), MARKER)
    assert not is_its_marker(claim(), marker)
    assert "but another marker has ended it" in claim_text(claim(), marker)


HELD = (("orders", (0,)),)


def the_end(at_ms: int) -> list[PastEnd]:
    """An id whose client has aborted its transaction."""
    states = ((S.ONGOING, at_ms - 100), (S.PREPARE_ABORT, at_ms), (S.COMPLETE_ABORT, at_ms + 10))
    values = [(TransactionLogValue(1, PRODUCER, 2, 60_000, state, HELD, at, at_ms - 100), at) for state, at in states]
    records = [LogRecord(0, number, at, "app", value) for number, (value, at) in enumerate(values)]
    return past_ends(history_of(records))


@pytest.mark.parametrize(("decided", "complete"), [("committed", S.COMPLETE_COMMIT), ("aborted", S.COMPLETE_ABORT)])
def test_a_decision_without_its_complete_record_may_be_taken_back(decided: str, complete: S) -> None:
    prepare = S.PREPARE_COMMIT if complete is S.COMPLETE_COMMIT else S.PREPARE_ABORT
    states = ((S.ONGOING, 1_000), (prepare, 2_000), (complete, 2_500))
    values = [(TransactionLogValue(1, PRODUCER, 2, 60_000, state, HELD, at, 1_000), at) for state, at in states]
    records = [LogRecord(0, number, at, "app", value) for number, (value, at) in enumerate(values)]
    (open_end,), (end,) = past_ends(history_of(records[:2])), past_ends(history_of(records))
    text = end_text(open_end)
    assert text.startswith(f"Its last transaction is being {decided} since 1970-01-01 00:00:02.000Z, after 1.0s: ")
    assert text.endswith(f"The decision can still be taken back until the log has {complete}.")
    text = end_text(end)
    assert text.startswith(f"Its last transaction was {decided} at 1970-01-01 00:00:02.500Z, after 1.5s: ")
    assert "taken back" not in text


def at(time_ms: int) -> Marker:
    return Marker(offset=time_ms, producer_epoch=2, commit=False, coordinator_epoch=0, timestamp_ms=time_ms)


ENDED_MS = 1_000_000
LAST: dict[str, tuple[list[Marker], bool]] = {
    "the coordinator's": ([at(ENDED_MS + 5)], False),
    "the coordinator's, by a clock that is ahead": ([at(ENDED_MS + 4_000)], False),
    "the coordinator's, by a clock that is behind": ([at(ENDED_MS - 4_000)], False),
    "a second one right after it": ([at(ENDED_MS + 5), at(ENDED_MS + 50)], True),
    "one that is much later": ([at(ENDED_MS + 60_000)], True),
    "one that is much earlier": ([at(ENDED_MS - 60_000)], True),
}


@pytest.mark.parametrize(("markers", "is_by_hand"), LAST.values(), ids=LAST.keys())
def test_an_end_of_an_id_has_one_marker_on_a_partition(markers: list[Marker], is_by_hand: bool) -> None:  # noqa: FBT001
    assert is_last_by_hand(the_end(ENDED_MS), markers) is is_by_hand


def test_a_producer_without_an_id_has_no_end() -> None:
    assert is_last_by_hand([], [MARKER])


def test_what_the_log_alone_shows_says_so() -> None:
    orders = TopicPartition("orders", 3)
    text = unclaimed_text(orders, 7, MARKER, None)
    assert text.startswith(
        "The log of orders-3 has the ABORT marker at offset 160 (producer id 7, epoch 2, coordinator"
    )
    assert text.endswith("No event of txnwatch says who.")
    unread = unclaimed_text(orders, 7, MARKER, "no answer")
    assert unread.endswith("because the events topic could not be read: no answer.")


def published(monkeypatch: pytest.MonkeyPatch, *records: object, hidden: bool = False) -> PublishedEvents:
    """What is read of an events topic with these records; an exception ends the reading."""

    def read(_: object) -> Any:
        for record in records:
            if isinstance(record, BrokerError):
                raise record
            yield record

    monkeypatch.setattr(events_access, "read_events_topic", read)
    topics = {"events": SimpleNamespace(is_hidden=hidden)}
    cluster: Any = SimpleNamespace(known=SimpleNamespace(topics=topics))
    parsed: Any = SimpleNamespace(events_topic="events")
    return read_published(cluster, parsed)


def test_the_events_topic_is_read_as_far_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    told, bad = claim(), BadEventError(SkipReason.INVALID, "no event")
    assert published(monkeypatch, told) == PublishedEvents((told,))
    assert published(monkeypatch, told, bad) == PublishedEvents((told,), "1 of its records could not be read")
    assert published(monkeypatch, told, BrokerError("no answer")) == PublishedEvents((told,), "no answer")
    assert published(monkeypatch, BrokerError("not asked"), hidden=True) == PublishedEvents()
