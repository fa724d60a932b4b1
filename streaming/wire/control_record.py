"""Control records: the ABORT and COMMIT markers that end a transaction on a partition.

Key: int16 version, int16 type. Value: int16 version, int32 coordinator epoch. A version above the highest we know is
read as the highest we know, as Kafka does (classes `ControlRecordType`, `EndTransactionMarker`). Types other than ABORT
and COMMIT (KRaft's own, or later ones) end no transaction and are returned as None.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.primitives import Reader
from txnwatch.streaming.wire.record_batch import BatchHeader, records


class MarkerType(IntEnum):
    """How the marker ends the transaction."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """One marker; `coordinator_epoch` is the leader epoch of the coordinator's log partition."""

    type: MarkerType
    coordinator_epoch: int


def decode_marker(key: memoryview | bytes, value: memoryview | bytes) -> EndTransactionMarker | None:
    """The marker in one control record, or None for a control record that ends no transaction.

    Raises:
        WireError: the key or the value is too short or has a negative version.
    """
    key_reader = Reader(key)
    _version(key_reader, "control record key version")
    raw_type = key_reader.int16("control record type")
    if raw_type not in (MarkerType.ABORT, MarkerType.COMMIT):
        return None
    value_reader = Reader(value)
    _version(value_reader, "marker version")
    return EndTransactionMarker(MarkerType(raw_type), value_reader.int32("coordinator epoch"))


def read_marker(buffer: memoryview | bytes, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    """The marker in the control batch at `position`; None if compaction emptied it or it is not a marker."""
    for record in records(buffer, position, header):
        if record.key is None or record.value is None:
            raise WireError("control record", position, "no key or value", "both")
        return decode_marker(record.key, record.value)
    return None


def _version(reader: Reader, field: str) -> None:
    start = reader.position
    version = reader.int16(field)
    if version < 0:
        raise WireError(field, start, version, "0 or more")
