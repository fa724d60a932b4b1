"""Which of two events of one incident counts, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.incidents import an_event
from txnwatch.state.evidence.ending import no_longer_open, partition_gone
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.incidents.book import IN_HAND_MS, is_left_to_watch
from txnwatch.state.incidents.claims import (
    ROOM,
    SEEN_OVER_MS,
    Arrival,
    EndedIncident,
    arrival,
    hides,
    is_before_end,
    is_long_over,
    is_usable,
)
from txnwatch.state.incidents.life import Happening, Known, NextStep, step
from txnwatch.state.model.incident import (
    KEPT_MS,
    SPENT_SEQUENCE,
    Decision,
    IncidentEvent,
    Initiator,
    repeat_incident_id,
    resolved,
    span_incident_id,
)

OPENED = an_event()
NOW_MS = OPENED.time_ms
SECOND = replace(OPENED, sequence=2, status="updated")
THIRD = replace(OPENED, sequence=3, status="updated")
END = resolved(OPENED, NOW_MS, no_longer_open(NOW_MS, "gone"))  # sequence 2
OTHER_END = resolved(OPENED, NOW_MS, partition_gone(NOW_MS))
OTHER_SECOND = replace(SECOND, hidden_records=7)

ARRIVALS: dict[str, tuple[IncidentEvent, int, IncidentEvent | None, IncidentEvent | None, Arrival]] = {
    "the first of an unknown incident": (OPENED, 0, None, None, Arrival.NEW),
    "the next": (SECOND, 1, OPENED, None, Arrival.NEW),
    "a later one, and one is missing": (THIRD, 1, OPENED, None, Arrival.NEW),
    "one that we have sent": (SECOND, 1, SECOND, SECOND, Arrival.KNOWN),
    "another one before ours of the same sequence": (OTHER_SECOND, 1, SECOND, SECOND, Arrival.NEW),
    "another one, and ours is later": (OTHER_SECOND, 1, THIRD, None, Arrival.KNOWN),
    "the second of one sequence": (OTHER_SECOND, 2, SECOND, None, Arrival.REPEATED),
    "ours as the second of one sequence": (SECOND, 2, OTHER_SECOND, SECOND, Arrival.REPEATED),
    "an older one": (OPENED, 2, SECOND, None, Arrival.OLDER),
    "an older one that we have sent": (OPENED, 2, SECOND, OPENED, Arrival.OLDER),
}


@pytest.mark.parametrize(("event", "last", "known", "sent", "expected"), ARRIVALS.values(), ids=ARRIVALS.keys())
def test_the_order_on_the_topic_decides(
    event: IncidentEvent, last: int, known: IncidentEvent | None, sent: IncidentEvent | None, expected: Arrival
) -> None:
    assert arrival(event, last, known, sent) is expected


@given(st.lists(st.integers(1, 4), max_size=8))
def test_each_sequence_is_new_once_and_only_above_all_earlier_ones(sequences: list[int]) -> None:
    last, known, new = 0, None, []
    for sequence in sequences:
        event = replace(OPENED, sequence=sequence)
        if arrival(event, last, known, None) is Arrival.NEW:
            new.append(sequence)
            last, known = sequence, event
    assert new == sorted(set(new))
    assert last == max(sequences, default=0)


def test_after_an_older_event_the_latest_is_published_again_and_a_claim_once_it_is_found() -> None:
    expected = {
        Known.FOUND: NextStep.PUBLISH_AGAIN,
        Known.CLAIMED: NextStep.WAIT,
        Known.ENDED: NextStep.PUBLISH_AGAIN,
        Known.NOTHING: NextStep.NOTHING,
    }
    assert {known: step(known, Happening.RECORD_IS_OLDER) for known in Known} == expected


REPEATED = {
    "an open event hides the end": (OTHER_SECOND, END, True),
    "an end hides an open event": (END, SECOND, True),
    "an end after an end": (END, END, False),
    "another end after an end": (OTHER_END, END, True),
    "an open event after an open one": (OTHER_SECOND, SECOND, False),
    "another outcome after an open event": (replace(SECOND, expected_outcome="none"), SECOND, True),
    "the end has another sequence": (OTHER_SECOND, replace(END, sequence=3), False),
}


@pytest.mark.parametrize(("event", "known", "expected"), REPEATED.values(), ids=REPEATED.keys())
def test_an_event_that_is_hidden_is_published_again(
    event: IncidentEvent, known: IncidentEvent, *, expected: bool
) -> None:
    assert hides(event, known) is expected
    for found in (Known.FOUND, Known.ENDED):
        assert step(found, Happening.RECORD_HIDES_LAST) is NextStep.PUBLISH_AGAIN


def test_our_end_follows_an_event_that_came_first() -> None:
    assert is_before_end(OTHER_SECOND, END)
    assert not is_before_end(OTHER_SECOND, SECOND)
    assert not is_before_end(replace(END, time_ms=NOW_MS + 1), END)
    assert not is_before_end(OTHER_SECOND, None)


@pytest.mark.parametrize(
    ("sequence", "is_ours", "expected"),
    [
        (1, False, True),
        (SPENT_SEQUENCE - ROOM - 1, False, True),
        (SPENT_SEQUENCE - ROOM, False, False),
        (SPENT_SEQUENCE - ROOM, True, True),
        (SPENT_SEQUENCE, False, False),
    ],
)
def test_an_event_of_another_writer_must_leave_room(sequence: int, *, is_ours: bool, expected: bool) -> None:
    event = replace(OPENED, sequence=sequence)
    sent = event if is_ours else replace(event, hidden_records=7)
    assert is_usable(event, OPENED.cluster_id, sent) is expected
    assert not is_usable(event, "another", sent)


EXPIRY = {
    "both long ago": (1_000, SEEN_OVER_MS, True),
    "its end is young": (999, SEEN_OVER_MS, False),
    "known for a short time": (1_000, SEEN_OVER_MS - 1, False),
}


@pytest.mark.parametrize(("ended_ago", "known_for", "expected"), EXPIRY.values(), ids=EXPIRY.keys())
def test_an_id_is_used_again_only_after_the_retention(ended_ago: int, known_for: int, *, expected: bool) -> None:
    ended = EndedIncident(2, NOW_MS - ended_ago, NOW_MS - known_for)
    assert ended.is_expired(NOW_MS, 1_000) is expected


def test_an_incident_is_long_over_a_day_after_its_end() -> None:
    assert not is_long_over(END, NOW_MS + KEPT_MS - 1)
    assert is_long_over(END, NOW_MS + KEPT_MS)
    assert not is_long_over(OPENED, NOW_MS + 10 * KEPT_MS)


def test_an_abort_by_hand_is_left_to_its_command_for_a_while() -> None:
    first = span_incident_id(
        OPENED.cluster_id, OPENED.topic_id, OPENED.partition, OPENED.producer_id, OPENED.txn_start_offset
    )
    by_hand = replace(
        OPENED,
        incident_id=repeat_incident_id(first, NOW_MS),
        action=action(Decision.ABORT, "operator", NOW_MS, initiator=Initiator.OPERATOR),
    )
    assert is_left_to_watch(OPENED, NOW_MS, NOW_MS)
    for ahead_ms in (-3_600_000, 0, 3_600_000):  # the clock of the command's machine
        event = replace(by_hand, time_ms=NOW_MS + ahead_ms)
        assert not is_left_to_watch(event, NOW_MS, NOW_MS + IN_HAND_MS - 1)
        assert is_left_to_watch(event, NOW_MS, NOW_MS + IN_HAND_MS)
