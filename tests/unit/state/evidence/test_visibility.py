"""What a read_committed consumer gets of one offset: each rule, and the order in which they count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from txnwatch.state.evidence.read_committed import (
    RULES,
    VISIBILITY_MEANS,
    BatchPlace,
    RecordPlace,
    Visibility,
    visibility,
)
from txnwatch.state.model.transaction import Marker

V = Visibility
COMMIT, ABORT = Marker(30, 0, True, 0, 1), Marker(30, 0, False, 0, 1)
DATA = BatchPlace(10, 14, 5, 7, 0, 1, is_transactional=True, is_control=False)
PLAIN = replace(DATA, is_transactional=False)
MARKER = replace(DATA, last_offset=10, record_count=1, is_control=True, commit=True)
PLACE = RecordPlace(12, 5, 40, 40, DATA, marker=COMMIT)

CASES: dict[str, tuple[dict[str, Any], Visibility]] = {
    "committed": ({}, V.VISIBLE),
    "committed, behind an open transaction": ({"last_stable_offset": 12}, V.HELD),
    "committed, the last one that is stable": ({"last_stable_offset": 13}, V.VISIBLE),
    "aborted": ({"marker": ABORT}, V.ABORTED),
    "aborted, behind an open transaction": ({"marker": ABORT, "last_stable_offset": 9}, V.ABORTED),
    "open": ({"marker": None, "is_open": True}, V.OPEN),
    "no marker, and not open": ({"marker": None}, V.UNKNOWN),
    "of no transaction": ({"batch": PLAIN, "marker": None}, V.VISIBLE),
    "of no transaction, behind an open one": ({"batch": PLAIN, "marker": None, "last_stable_offset": 11}, V.HELD),
    "transactional without a producer": ({"batch": replace(DATA, producer_id=None), "marker": None}, V.VISIBLE),
    "a marker": ({"batch": MARKER, "marker": None, "offset": 10}, V.CONTROL),
    "a marker of an open partition": ({"batch": MARKER, "offset": 10, "last_stable_offset": 9}, V.CONTROL),
    "deleted": ({"offset": 4}, V.BELOW_LOG_START),
    "the first that is there": ({"offset": 5, "batch": replace(DATA, base_offset=5)}, V.VISIBLE),
    "the end": ({"offset": 40, "batch": None}, V.BEYOND_END),
    "no batch behind it": ({"batch": None}, V.COMPACTED),
    "a later batch": ({"batch": replace(DATA, base_offset=13)}, V.COMPACTED),
    "an empty batch": ({"batch": replace(DATA, record_count=0)}, V.COMPACTED),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES.keys())
def test_what_a_consumer_gets(changes: dict[str, Any], expected: Visibility) -> None:
    assert visibility(replace(PLACE, **changes)) is expected


def test_each_answer_has_one_rule_and_a_text() -> None:
    assert [found for found, _ in RULES] == [*dict.fromkeys(found for found, _ in RULES)]
    assert {found for found, _ in RULES} == set(Visibility) == VISIBILITY_MEANS.keys()
    assert {expected for _, expected in CASES.values()} == set(Visibility)


@pytest.mark.parametrize(("count", "is_thinned"), [(5, False), (4, True), (0, True)])
def test_a_batch_with_fewer_records_than_offsets_is_thinned(count: int, *, is_thinned: bool) -> None:
    assert replace(DATA, record_count=count).is_thinned is is_thinned
