"""What an open span does to read_committed consumers."""

from __future__ import annotations

import pytest

from txnwatch.state.evidence.blocked_reads import blocked_reads
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import PartitionReading

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
def test_what_is_hidden_and_by_which_span(
    reading: PartitionReading, start: int, expected: tuple[int | None, int, int | None, bool | None]
) -> None:
    assert blocked_reads(reading, start) == expected
