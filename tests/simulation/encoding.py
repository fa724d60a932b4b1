"""The entries of the simulated logs, and the bytes that a broker would send for them.

The bytes come from tests/support, which was written down from Kafka's formats and uses nothing of txnwatch's
decoders. A batch does not change once it is written, so equal batches of different seeds share their bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from support.batches import TIMESTAMP_MS, a_batch, a_marker, a_record
from support.transaction_log import a_key, a_value
from txnwatch.streaming.wire.internal_topics import TransactionLogValue


class Data(NamedTuple):
    """A transactional batch of a producer."""

    producer_id: int
    producer_epoch: int
    count: int = 1
    timestamp_ms: int = TIMESTAMP_MS


class Mark(NamedTuple):
    """A marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


class LoggedValue(NamedTuple):
    """A record of the coordinator's log; no value is a tombstone."""

    transactional_id: str
    value: TransactionLogValue | None
    timestamp_ms: int


Body = Data | Mark | LoggedValue


@lru_cache(maxsize=1 << 16)
def encode(offset: int, leader_epoch: int, body: Body) -> bytes:
    """The batch as a broker sends it."""
    match body:
        case Data(producer_id, producer_epoch, count, timestamp_ms):
            return a_batch(
                offset,
                count=count,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                leader_epoch=leader_epoch,
                base_timestamp=timestamp_ms,
            )
        case Mark(producer_id, producer_epoch, coordinator_epoch, commit):
            return a_marker(
                offset,
                commit=commit,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                leader_epoch=leader_epoch,
            )
        case LoggedValue(transactional_id, value, timestamp_ms):
            record = a_record(key=a_key(transactional_id), value=a_value(value) if value is not None else None)
            return a_batch(
                offset,
                records=[record],
                producer_id=-1,
                transactional=False,
                leader_epoch=leader_epoch,
                base_sequence=-1,
                base_timestamp=timestamp_ms,
            )
