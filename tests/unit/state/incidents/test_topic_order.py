"""Which of two events of one incident counts, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.incidents import an_event
from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.incidents.claims import (
    ROOM,
    SEEN_OVER_MS,
    EndedIncident,
    is_long_over,
    is_usable,
)
from txnwatch.state.incidents.incident_store import IN_HAND_MS, IncidentStore, is_left_to_watch
from txnwatch.state.model.incident import (
    KEPT_MS,
    SPENT_SEQUENCE,
    Decision,
    Initiator,
    repeat_incident_id,
    resolved,
    span_incident_id,
)

OPENED = an_event()
NOW_MS = OPENED.time_ms
END = resolved(OPENED, NOW_MS, no_longer_open(NOW_MS, "gone"))  # sequence 2


@given(st.lists(st.integers(1, 4), max_size=8))
def test_each_sequence_is_next_once_and_only_above_all_earlier_ones(sequences: list[int]) -> None:
    store = IncidentStore(OPENED.cluster_id)
    taken = [(one, store.take(replace(OPENED, sequence=one), NOW_MS)) for one in sequences]
    found = [one for one, record in taken if record is not None and record.is_next]
    assert found == sorted(set(found))
    assert store.top(OPENED.incident_id) == max(sequences, default=0)


def test_a_record_is_our_own_if_it_is_what_this_process_has_sent_and_once() -> None:
    store = IncidentStore(OPENED.cluster_id)
    store.sent([OPENED])
    other = replace(OPENED, hidden_records=7)
    found = [store.take(one, NOW_MS) for one in (other, OPENED, OPENED)]
    assert [record is not None and record.is_own for record in found] == [False, True, False]


def test_of_our_last_event_no_other_record_has_the_sequence() -> None:
    for others, expected in (((), True), ((2,), False), ((3,), False)):
        store = IncidentStore(OPENED.cluster_id)
        store.sent([END])
        for sequence in others:
            store.take(replace(OPENED, sequence=sequence), NOW_MS)
        store.take(END, NOW_MS)
        store.take(replace(OPENED, sequence=1), NOW_MS)  # an older one behind it changes nothing
        assert store.is_last_ours(END) is expected


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


def test_of_an_unknown_incident_a_record_that_uses_up_its_id_is_a_claim() -> None:
    store = IncidentStore(OPENED.cluster_id, content_of=lambda event, _: replace(event, suggested_command="a look"))
    store.take(replace(OPENED, sequence=SPENT_SEQUENCE - 1, suggested_command="of another client"), NOW_MS)
    assert [one.suggested_command for one in store.take_spent()] == ["a look"]


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
