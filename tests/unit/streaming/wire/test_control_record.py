"""Control records: the two that end a transaction, and all the others, which are none of ours."""

from __future__ import annotations

import struct

import pytest

from support.batches import a_batch, a_control_batch, a_marker, a_record
from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.record_batch import EndTransactionMarker, MarkerType, decode_marker, read_marker, walk

ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


def marker_in(batch: bytes) -> EndTransactionMarker | None:
    [(position, header)] = walk(batch)
    return read_marker(batch, position, header)


def key(kind: int, version: int = 0) -> bytes:
    return struct.pack(">hh", version, kind)


def value(coordinator_epoch: int, version: int = 0) -> bytes:
    return struct.pack(">hi", version, coordinator_epoch)


@pytest.mark.parametrize(
    ("raw_key", "raw_value", "marker"),
    [
        pytest.param(key(0), value(4), EndTransactionMarker(ABORT, 4), id="abort"),
        pytest.param(key(1), value(0), EndTransactionMarker(COMMIT, 0), id="commit"),
        pytest.param(key(0), value(-1), EndTransactionMarker(ABORT, -1), id="abort by an administrator"),
        pytest.param(key(1, 7), value(6), EndTransactionMarker(COMMIT, 6), id="later key version"),
        pytest.param(key(1) + b"more", value(6), EndTransactionMarker(COMMIT, 6), id="later key with more fields"),
        pytest.param(key(0), value(6, 3) + b"more", EndTransactionMarker(ABORT, 6), id="later value with more fields"),
    ],
)
def test_a_marker_is_read_and_later_versions_as_the_highest_known(
    raw_key: bytes, raw_value: bytes, marker: EndTransactionMarker
) -> None:
    assert decode_marker(raw_key, raw_value) == marker


@pytest.mark.parametrize("kind", [-1, 2, 3, 6, 99])
def test_other_control_records_end_no_transaction_whatever_they_carry(kind: int) -> None:
    assert decode_marker(key(kind), b"") is None


TOO_SHORT = {
    "key": ([(key(1)[:size], value(1)) for size in range(4)], "control record key version|control record type"),
    "value": ([(key(1), value(1)[:size]) for size in range(6)], "marker version|coordinator epoch"),
}


@pytest.mark.parametrize(("records", "field"), TOO_SHORT.values(), ids=TOO_SHORT.keys())
def test_every_truncation_is_a_wire_error(records: list[tuple[bytes, bytes]], field: str) -> None:
    for raw_key, raw_value in records:
        with pytest.raises(WireError, match=field):
            decode_marker(raw_key, raw_value)


@pytest.mark.parametrize(
    ("raw_key", "raw_value", "field"),
    [(key(1, -1), value(1), "control record key version"), (key(1), value(1, -1), "marker version")],
    ids=["key", "value"],
)
def test_a_negative_version_is_a_wire_error(raw_key: bytes, raw_value: bytes, field: str) -> None:
    with pytest.raises(WireError, match=f"{field} at byte 0: expected 0 or more, found -1"):
        decode_marker(raw_key, raw_value)


def test_a_marker_takes_78_bytes_as_on_a_live_broker() -> None:
    assert len(a_marker(coordinator_epoch=12)) == 78


@pytest.mark.parametrize(("commit", "kind"), [(True, COMMIT), (False, ABORT)], ids=["commit", "abort"])
def test_a_marker_is_read_from_its_batch(*, commit: bool, kind: MarkerType) -> None:
    batch = a_marker(90, commit=commit, coordinator_epoch=12)
    assert marker_in(batch) == EndTransactionMarker(kind, 12)


def test_a_marker_is_read_where_its_batch_lies() -> None:
    segment = (
        a_marker(0, commit=True, coordinator_epoch=1) + a_batch(1) + a_marker(2, commit=False, coordinator_epoch=2)
    )
    found = [read_marker(segment, position, header) for position, header in walk(segment) if header.is_control]
    assert found == [EndTransactionMarker(COMMIT, 1), EndTransactionMarker(ABORT, 2)]


def test_a_control_batch_that_compaction_emptied_is_no_marker() -> None:
    assert marker_in(a_control_batch([])) is None


def test_a_control_batch_of_another_kind_is_no_marker() -> None:
    assert marker_in(a_control_batch([a_record(key=key(2), value=b"a leader change")])) is None


@pytest.mark.parametrize(
    "record", [a_record(key=None, value=value(1)), a_record(key=key(1), value=None)], ids=["key", "value"]
)
def test_a_control_record_without_key_or_value_is_a_wire_error(record: bytes) -> None:
    with pytest.raises(WireError, match="control record at byte 0: expected both"):
        marker_in(a_control_batch([record]))
