"""The broker's clock is estimated from what lies between two listings, and not where they lie too far apart."""

from __future__ import annotations

import pytest

from support.batches import a_batch, a_record
from support.transaction_log import a_key, a_value
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.transaction import TransactionState
from txnwatch.streaming.offsets import Position, SourceOffset
from txnwatch.streaming.options import parse_options
from txnwatch.streaming.read_plan import _clock_offset_ms, _read, plan_reads
from txnwatch.streaming.wire.transaction_log import TransactionLogValue

LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
OPTIONS = parse_options({"kafka.bootstrap.servers": "unused:1", "subscribe": "orders"})
STAMPED_MS = 1_000_000


@pytest.mark.parametrize(
    ("listed_before_ms", "listed_ms", "offset_ms"),
    [(STAMPED_MS - 300, STAMPED_MS + 200, 50), (STAMPED_MS - 9_000, STAMPED_MS + 1_200, None)],
    ids=["half a second apart", "an outage between them"],
)
def test_the_middle_of_what_the_records_allow(listed_before_ms: int, listed_ms: int, offset_ms: int | None) -> None:
    start = SourceOffset("cluster", 6, listed_before_ms, listed_before_ms, {LOG: Position("log-id", 5, 3, 5)})
    end = SourceOffset("cluster", 7, listed_ms, listed_ms, {LOG: Position("log-id", 6, 3, 6)})
    plan = plan_reads(start, end, OPTIONS)[0]
    (read,) = [_read(found, OPTIONS) for found in plan.ranges]
    value = TransactionLogValue(1, 7, 0, 60_000, TransactionState.EMPTY, None, STAMPED_MS, -1)
    record = a_record(key=a_key("app"), value=a_value(value))
    read.fold.feed(a_batch(5, records=[record], producer_id=-1, transactional=False, base_timestamp=STAMPED_MS))
    assert _clock_offset_ms(plan, [read]) == offset_ms
