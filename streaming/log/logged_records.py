"""The records of one batch of `__transaction_state`, decoded: all of them or none."""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.quantities import Offset, TimestampMs
from txnwatch.streaming.wire.record_batch import BatchHeader, Record, records
from txnwatch.streaming.wire.transaction_log import TransactionLogValue, decode_key, decode_value


class LoggedRecord(NamedTuple):
    """One record about a transactional id; `value` is None for a tombstone, `key` is the encoded key."""

    transactional_id: str
    offset: Offset
    timestamp_ms: TimestampMs
    value: TransactionLogValue | None
    key: memoryview


def logged_records(buffer: memoryview | bytes, position: int, header: BatchHeader) -> list[LoggedRecord]:
    """The records of the batch at a byte position; records with a key of another type are left out.

    A batch that cannot be decoded as a whole has no records: what stands before the damage may be damaged too.

    Raises:
        WireError: the batch is compressed, or a record of it cannot be decoded.
    """
    return [found for record in records(buffer, position, header) if (found := logged_record(record)) is not None]


def logged_record(record: Record) -> LoggedRecord | None:
    """A record of the log, decoded; None if its key has another type.

    Raises:
        WireError: the key or the value cannot be decoded.
    """
    name = decode_key(record.key) if record.key is not None else None
    if name is None or record.key is None:
        return None
    value = decode_value(record.value) if record.value is not None else None
    return LoggedRecord(name, record.offset, TimestampMs(record.timestamp), value, record.key)
