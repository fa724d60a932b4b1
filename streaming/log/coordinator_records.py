"""The records of `__transaction_state`, batch by batch: decoded, all records of a batch or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from txnwatch.state.model.values import Offset, TimestampMs
from txnwatch.streaming.wire.internal_topics import (
    QuickDecoded,
    TransactionLogValue,
    decode_key,
    decode_value,
    quick_decode,
)
from txnwatch.streaming.wire.record_batch import BatchHeader, BatchWalker, Record, end_of_entry, header_at, records


class LoggedRecord(NamedTuple):
    """One record about a transactional id; `value` is None for a tombstone."""

    transactional_id: str
    offset: Offset
    timestamp_ms: TimestampMs
    value: TransactionLogValue | None


def logged_records(buffer: memoryview | bytes, position: int, header: BatchHeader) -> list[LoggedRecord]:
    """The records of the batch at a byte position; records with a key of another type are left out.

    A batch that cannot be decoded as a whole has no records: what stands before the damage may be damaged too.

    Raises:
        WireError: the batch is compressed, or a record of it cannot be decoded.
    """
    return [logged for record in records(buffer, position, header) if (logged := logged_record(record)) is not None]


def logged_record(record: Record) -> LoggedRecord | None:
    """A record of the log, decoded; None if its key has another type.

    Raises:
        WireError: the key or the value cannot be decoded.
    """
    name = decode_key(record.key) if record.key is not None else None
    if name is None:
        return None
    value = decode_value(record.value) if record.value is not None else None
    return LoggedRecord(name, record.offset, TimestampMs(record.timestamp), value)


def batch_at(raw: bytes, at: int) -> QuickDecoded | BatchHeader:
    """The batch at a byte position: decoded if `quick_decode` accepts it, or else its header."""
    return quick_decode(raw, at) or header_at(raw, at)


class CoordinatorLogWalker(BatchWalker):
    """Walks batches of the coordinators' log."""

    def batches(self, raw: bytes) -> Iterator[tuple[int, QuickDecoded | BatchHeader]]:
        """Each batch with the byte where it begins: decoded if `quick_decode` accepts it, or else its header.

        `leader_epoch` and `position` are those of the batch once the next one is asked for.

        Raises:
            WireError: a length or magic that no broker writes.
        """
        at = 0
        while True:
            seen = quick_decode(raw, at)
            if seen is None:
                entry = next(self.headers(raw, at), None)
                if entry is None:
                    return
                yield entry
                at, header = end_of_entry(raw, entry[0]), entry[1]
                self.leader_epoch, self.position = header.leader_epoch, Offset(header.last_offset + 1)
            elif seen[1] >= self.end:
                self.beyond_end(header_at(raw, at))
                self.position = self.end
                return
            else:
                yield at, seen
                at = seen[0]
                self.leader_epoch, self.position = seen[2], Offset(seen[1] + 1)
