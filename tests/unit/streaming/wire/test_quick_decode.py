"""A quick_decode has no answer for what it has not followed to the last byte; whoever gets none decodes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from support.batches import COMMIT, CONTROL, LOG_APPEND_TIME, TIMESTAMP_MS, a_batch, a_record
from support.quick_batches import Shown, fields_of, quick_fields, quickly_shown, shown_by
from support.transaction_log import a_key, a_value
from txnwatch.state.model.errors import WireError
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.streaming.log.coordinator_records import logged_records
from txnwatch.streaming.wire.internal_topics import NO_VALUE, TransactionLogValue, quick_decode
from txnwatch.streaming.wire.record_batch import walk

V1 = TransactionLogValue(1, 5, 0, 60_000, S.ONGOING, (("orders", (0, 1)),), 1, 1, 4, None, 2)
V0 = replace(V1, version=0, previous_producer_id=None, client_transaction_version=0)
EMPTY, EMPTY_V0 = (replace(value, state=S.EMPTY, partitions=None) for value in (V1, V0))
KEY = a_key("app")


def a_log_batch(key: bytes = KEY, value: bytes | None = a_value(V1), *records: bytes, **how: int) -> bytes:
    all_records = [a_record(key=key, value=value), *records]
    return a_batch(7, records=all_records, producer_id=-1, transactional=False, leader_epoch=3, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (V1, (5, 4, True)),
        (V0, (5, -1, True)),
        (EMPTY, (5, 4, False)),
        (EMPTY_V0, (5, -1, False)),
        (replace(V1, previous_producer_id=None), (5, -1, True)),
        (replace(V1, client_transaction_version=0), (5, 4, True)),
        (replace(V1, previous_producer_id=None, client_transaction_version=0), (5, -1, True)),
        (None, (-1, -1, False)),
    ],
)
def test_records_of_brokers_are_decoded(value: TransactionLogValue | None, expected: tuple[int, int, bool]) -> None:
    raw = a_log_batch(value=None if value is None else a_value(value))
    seen, other = quick_decode(raw, 0), quick_decode(b"ab" + raw + raw, 2)
    assert seen is not None
    assert other is not None
    assert seen[:8] == (len(raw), 7, 3, TIMESTAMP_MS, b"app", *expected)
    assert other[:8] == (2 + len(raw), 7, 3, TIMESTAMP_MS, b"app", *expected)
    assert (seen[8] == NO_VALUE) is (value is None)
    if value is not None:
        assert quick_fields(seen) == quick_fields(other) == fields_of(value)
    assert [quick_decode(raw[:size], 0) for size in range(len(raw))] == [None] * len(raw), "cut off"


def test_a_name_of_more_than_one_byte_of_length_and_the_brokers_stamp() -> None:
    name = "x" * 300
    raw = a_log_batch(a_key(name), max_timestamp=99, attributes=LOG_APPEND_TIME)
    seen = quick_decode(raw, 0)
    assert seen is not None
    assert seen[:8] == (len(raw), 7, 3, 99, name.encode(), 5, 4, True)
    assert quick_fields(seen) == fields_of(V1)


def test_batches_of_equal_lengths_and_other_layouts_are_decoded() -> None:
    alone = replace(V1, previous_producer_id=None)
    more = replace(alone, partitions=(("orders", (0, 1, 2)),), client_transaction_version=0)

    values = (alone, more)
    raws = [a_log_batch(value=a_value(value)) for value in values]
    assert len(raws[0]) == len(raws[1])
    for _ in range(2):
        for raw, value in zip(raws, values, strict=True):
            seen = quick_decode(raw, 0)
            assert seen is not None
            assert quick_fields(seen) == fields_of(value)


def test_more_layouts_than_are_kept_are_all_decoded() -> None:
    values = [replace(V1, partitions=(("t", tuple(range(count))),)) for count in range(1, 7)]
    for size in range(100, 900):
        for value in values:
            seen = quick_decode(a_log_batch(a_key("x" * size), a_value(value)), 0)
            assert seen is not None
            assert (seen[4], quick_fields(seen)) == (b"x" * size, fields_of(value))


def exactly(raw: bytes) -> tuple[Shown, int] | None:
    """What the exact decoders return for the only record; None if they refuse it."""
    try:
        ((at, header),) = walk(raw)
        (record,) = logged_records(raw, at, header)
    except (WireError, ValueError):
        return None
    return shown_by(record), header.leader_epoch


@pytest.mark.parametrize("value", [V1, V0, EMPTY, EMPTY_V0, replace(V1, previous_producer_id=None), None])
def test_a_batch_with_a_changed_byte_is_decoded_exactly_or_not_at_all(value: TransactionLogValue | None) -> None:
    raw = a_log_batch(value=None if value is None else a_value(value))
    assert quick_decode(raw, 0) is not None
    for at in range(len(raw)):
        for change in (1, 2, 8, 0x80, 0xFF):
            other = bytearray(raw)
            other[at] ^= change
            seen = quick_decode(bytes(other), 0)
            assert seen is None or (quickly_shown(seen), seen[2]) == exactly(bytes(other)), f"byte {at}"


def changed(value: TransactionLogValue, at: int, to: bytes) -> bytes:
    raw = a_value(value)
    return raw[:at] + to + raw[at + len(to) :]


WITH_HEADER = a_record(key=KEY, value=a_value(V1), headers=[("h", None)])
DECODED: dict[str, Callable[[], bytes]] = {
    "a name that is not ASCII": lambda: a_log_batch(a_key("ü")),
    "a name that is no text": lambda: a_log_batch(struct.pack(">hh", 0, 1) + b"\xff"),
    "a name that is too long": lambda: a_log_batch(a_key("x" * 1_100)),
    "a name with bytes left over": lambda: a_log_batch(KEY + b"x"),
    "a key of another type": lambda: a_log_batch(a_key("app", version=1)),
    "a topic that is no text": lambda: a_log_batch(value=a_value(V1).replace(b"orders", b"\xffrders")),
    "a topic of version 0 that is no text": lambda: a_log_batch(value=a_value(V0).replace(b"orders", b"\xffrders")),
    "fewer than no topics": lambda: a_log_batch(value=changed(EMPTY_V0, 17, struct.pack(">i", -2))),
    "fewer than no partitions": lambda: a_log_batch(value=changed(V0, 29, struct.pack(">i", -1))),
    "tags of a topic": lambda: a_log_batch(value=a_value(V1).replace(b"\0\0\0\1\0", b"\0\0\0\1\1")),
    "a state below all": lambda: a_log_batch(value=changed(EMPTY, 16, b"\xff")),
    "a state that never reaches the log": lambda: a_log_batch(value=changed(EMPTY, 16, b"\6")),
    "a later version": lambda: a_log_batch(value=changed(EMPTY, 0, b"\0\2")),
    "a tag of a later broker": lambda: a_log_batch(value=a_value(V1, {9: b"later"})),
    "the next producer id": lambda: a_log_batch(value=a_value(replace(V1, next_producer_id=8))),
    "a value with bytes left over": lambda: a_log_batch(value=a_value(V1) + b"\0"),
    "a very large value": lambda: a_log_batch(value=a_value(replace(V0, partitions=(("x" * 9_000, ()),)))),
    "a number of headers, and no header": lambda: a_log_batch()[:-1] + b"\2",
    "a header": lambda: a_batch(7, records=[WITH_HEADER], transactional=False),
    "a delta of time": lambda: a_batch(
        7, records=[a_record(key=KEY, value=None, timestamp_delta=1)], transactional=False
    ),
    "a delta of offsets": lambda: a_batch(7, records=[a_record(1, key=KEY, value=None)], transactional=False),
    "several records": lambda: a_log_batch(KEY, None, a_record(1, key=KEY, value=None)),
    "a record that is lost": lambda: a_log_batch(last_offset_delta=1),
    "control records": lambda: a_log_batch(struct.pack(">hh", 0, COMMIT), attributes=CONTROL),
    "compression": lambda: a_log_batch(codec=1),
}


@pytest.mark.parametrize("raw", DECODED.values(), ids=DECODED.keys())
def test_everything_else_has_to_be_decoded(raw: Callable[[], bytes]) -> None:
    assert quick_decode(raw(), 0) is None
