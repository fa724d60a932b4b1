"""What `quick_decode` returns, in a form that can be compared with the exact decoders."""

from __future__ import annotations

from txnwatch.streaming.log.coordinator_records import LoggedRecord
from txnwatch.streaming.wire.internal_topics import NO_VALUE, QuickDecoded, TransactionLogValue, quick_participants

Shown = tuple[object, ...]


def shown_by(record: LoggedRecord) -> Shown:
    """The record of a batch, as the exact decoders return it."""
    name, offset, timestamp_ms, value = record
    return name, offset, timestamp_ms, None if value is None else fields_of(value)


def quickly_shown(seen: QuickDecoded) -> Shown:
    """The same, as `quick_decode` returns it."""
    return seen[4].decode(), seen[1], seen[3], None if seen[8] == NO_VALUE else quick_fields(seen)


def fields_of(value: TransactionLogValue) -> Shown:
    """The fields of a value; its partitions as a set."""
    previous_id, next_id, next_epoch = value.previous_producer_id, value.next_producer_id, value.next_producer_epoch
    return (
        *(value.version, value.producer_id, value.producer_epoch, value.transaction_timeout_ms, value.state),
        *(value.participants, value.last_update_ms, value.start_ms, value.client_transaction_version),
        *(previous_id, next_id, next_epoch),
    )


def quick_fields(seen: QuickDecoded) -> Shown:
    """The same of a batch that `quick_decode` has accepted, and that is no tombstone."""
    producer_id, previous_id = seen[5], seen[6] if seen[6] >= 0 else None
    version, epoch, timeout_ms, state, places, updated_ms, start_ms, client_version = seen[8:]
    return (
        *(version, producer_id, epoch, timeout_ms, state),
        *(quick_participants(version, places), updated_ms, start_ms, client_version),
        *(previous_id, None, None),
    )
