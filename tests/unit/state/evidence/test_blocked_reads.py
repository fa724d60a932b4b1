"""What an open span does to read_committed consumers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.incidents import an_event
from txnwatch.cli.explanation import blocking_order
from txnwatch.state.evidence.read_committed import blocked_reads
from txnwatch.state.incidents.checking import candidate_of, with_blocked_reads
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.values import Problem, TopicPartition

PLACE = TopicPartition("orders", 3)
CASES = {
    "the first open span": (PartitionReading(PLACE, last_stable_offset=5, high_watermark=9), 5, (5, 9, 4, True)),
    "behind another one": (PartitionReading(PLACE, last_stable_offset=5, high_watermark=9), 6, (5, 9, 4, False)),
    "retention has removed its beginning": (
        PartitionReading(PLACE, last_stable_offset=5, high_watermark=9, log_start_offset=7),
        3,
        (5, 9, 4, True),
    ),
    "nothing hidden": (PartitionReading(PLACE, last_stable_offset=9, high_watermark=9), 12, (9, 9, 0, False)),
    "not returned": (PartitionReading(PLACE, high_watermark=9), 5, (None, 9, None, None)),
}


@pytest.mark.parametrize(("reading", "start", "expected"), CASES.values(), ids=CASES.keys())
def test_an_open_span_hides_the_expected_records(
    reading: PartitionReading, start: int, expected: tuple[int | None, int, int | None, bool | None]
) -> None:
    assert blocked_reads(reading, start) == expected


INCIDENT = an_event(last_stable_offset=1, high_watermark=2, hidden_records=1, is_lso_blocker=False, txn_start_offset=5)
NO_ANSWER = {
    "no answer": PartitionReading(PLACE, Problem("NOT_LEADER"), last_stable_offset=5, high_watermark=9),
    "no last stable offset": PartitionReading(PLACE, high_watermark=9),
}


def test_an_open_incident_gets_the_current_values() -> None:
    now = with_blocked_reads(INCIDENT, PartitionReading(PLACE, last_stable_offset=5, high_watermark=9))
    assert now == replace(INCIDENT, last_stable_offset=5, high_watermark=9, hidden_records=4, is_lso_blocker=True)


@pytest.mark.parametrize("reading", NO_ANSWER.values(), ids=NO_ANSWER.keys())
def test_without_an_answer_the_known_values_stay(reading: PartitionReading) -> None:
    assert with_blocked_reads(INCIDENT, reading) == INCIDENT


def test_an_incident_without_an_offset_keeps_its_values() -> None:
    unplaced = replace(INCIDENT, txn_start_offset=None)
    assert with_blocked_reads(unplaced, PartitionReading(PLACE, last_stable_offset=5, high_watermark=9)) == unplaced


ORDERS_OF_SPANS = {
    "none": ((), ()),
    "one": ((7,), (7,)),
    "the lowest offset first": ((9, 3, 7), (3, 7, 9)),
}


@pytest.mark.parametrize(("starts", "expected"), ORDERS_OF_SPANS.values(), ids=ORDERS_OF_SPANS.keys())
def test_the_first_span_holds_the_last_stable_offset(starts: tuple[int, ...], expected: tuple[int, ...]) -> None:
    spans = [candidate_of(an_event(txn_start_offset=start)) for start in starts]
    assert tuple(one.span.start_offset for one in blocking_order(spans)) == expected


def test_of_two_spans_at_one_offset_the_order_of_the_search_counts() -> None:
    spans = [candidate_of(an_event(txn_start_offset=5, producer_id=producer)) for producer in (2, 1)]
    assert blocking_order(spans) == spans
