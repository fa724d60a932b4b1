"""Batches from bytes: headers of what is whole, records of what is ours, WireError for what no broker writes."""

from __future__ import annotations

import struct
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from support.batches import DELETE_HORIZON, LOG_APPEND_TIME, a_batch, a_marker, a_record, an_old_entry, varint
from support.batches import TIMESTAMP_MS as NOW
from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.record_batch import HEADER_SIZE, BatchHeader, end_of_whole_entries, records, walk

Plain = tuple[int, int, bytes | None, bytes | None]  # offset, timestamp, key, value


def the_header(batch: bytes) -> BatchHeader:
    [(position, header)] = walk(batch)
    assert position == 0
    return header


def the_records(batch: bytes) -> list[Plain]:
    def copied(part: memoryview | None) -> bytes | None:
        return None if part is None else bytes(part)

    found = records(batch, 0, the_header(batch))
    return [(offset, timestamp, copied(key), copied(value)) for offset, timestamp, key, value in found]


def test_a_header_is_read_field_by_field() -> None:
    batch = a_batch(
        2**40,
        count=3,
        producer_id=2**41,
        producer_epoch=5,
        leader_epoch=9,
        base_sequence=17,
        last_offset_delta=40,
        max_timestamp=NOW + 8,
    )
    header = the_header(batch)
    assert header == BatchHeader(
        base_offset=2**40,
        length=len(batch) - 12,
        leader_epoch=9,
        magic=2,
        crc=struct.unpack_from(">I", batch, 17)[0],
        attributes=0x10,
        last_offset_delta=40,
        base_timestamp=NOW,
        max_timestamp=NOW + 8,
        producer_id=2**41,
        producer_epoch=5,
        base_sequence=17,
        record_count=3,
    )
    assert header.last_offset == 2**40 + 40


@pytest.mark.parametrize(
    ("batch", "transactional", "control", "compression"),
    [
        pytest.param(a_batch(transactional=False), False, False, 0, id="plain"),
        pytest.param(a_batch(), True, False, 0, id="transactional"),
        pytest.param(a_marker(), True, True, 0, id="marker"),
        pytest.param(a_batch(codec=4), True, False, 4, id="zstd"),
        pytest.param(a_batch(attributes=DELETE_HORIZON), True, False, 0, id="with a delete horizon"),
    ],
)
def test_attributes_have_the_kind(*, batch: bytes, transactional: bool, control: bool, compression: int) -> None:
    header = the_header(batch)
    assert (header.is_transactional, header.is_control, header.compression) == (transactional, control, compression)


# What a segment that has lived through upgrades holds, in the order of offsets.
ENTRIES = (
    a_batch(0, count=2),
    an_old_entry(2),
    a_marker(3),
    a_batch(4, codec=1),
    an_old_entry(5, magic=0),
    a_batch(6),
)
SEGMENT = b"".join(ENTRIES)
STARTS = (0, *accumulate(len(entry) for entry in ENTRIES))
BATCHES = {0: 0, 2: 3, 3: 4, 5: 6}  # index among the entries -> base offset, old entries left out


def test_a_walk_yields_batches_with_their_positions_and_steps_over_old_entries() -> None:
    found = [(position, header.base_offset) for position, header in walk(SEGMENT)]
    assert found == [(STARTS[index], offset) for index, offset in BATCHES.items()]


def test_wherever_a_response_is_cut_a_walk_yields_the_batches_that_are_whole() -> None:
    for size in range(len(SEGMENT)):
        found = [header.base_offset for _, header in walk(memoryview(SEGMENT)[:size])]
        assert found == [offset for index, offset in BATCHES.items() if STARTS[index + 1] <= size], f"cut at {size}"


def test_an_old_entry_at_the_end_of_a_response_is_found_though_no_header_fits() -> None:
    short = an_old_entry(1, magic=0)
    segment = a_batch(0) + short
    start = len(segment) - len(short)
    assert len(short) < HEADER_SIZE
    assert [header.base_offset for _, header in walk(segment)] == [0]
    assert end_of_whole_entries(segment) == len(segment)
    for size in range(start, len(segment)):
        assert end_of_whole_entries(segment[:size]) == start, f"cut at {size}"


def test_the_beginning_of_a_batch_is_no_old_entry() -> None:
    for size in range(HEADER_SIZE):
        assert end_of_whole_entries(a_batch(0)[:size]) == 0


def patched(position: int, layout: str, value: int, entry: bytes | None = None) -> bytes:
    """A batch with one field overwritten, and a whole one behind it."""
    broken = bytearray(entry or a_batch(0))
    struct.pack_into(layout, broken, position, value)
    return bytes(broken) + a_batch(1)


NEVER_WRITTEN = {
    "a magic of the future": (patched(16, ">b", 3), "magic at byte 16: expected at most 2, found 3"),
    "a negative magic": (patched(16, ">b", -1), "magic at byte 16: expected at most 2, found 255"),
    "a length without room for the header": (patched(8, ">i", 48), "batch length at byte 8: expected at least 49"),
    "a length of zero": (patched(8, ">i", 0), "batch length at byte 8"),
    "a negative length": (patched(8, ">i", -61), "batch length at byte 8"),
    "an old entry without room for its fields": (
        patched(8, ">i", 13, an_old_entry(value=b"x" * 40)),
        "batch length at byte 8: expected at least 14",
    ),
}


@pytest.mark.parametrize(("buffer", "message"), NEVER_WRITTEN.values(), ids=NEVER_WRITTEN.keys())
def test_bytes_that_no_broker_writes_are_a_wire_error(buffer: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        list(walk(buffer))


def test_a_short_old_entry_that_no_broker_writes_is_a_wire_error() -> None:
    with pytest.raises(WireError, match="batch length at byte 8: expected at least 14, found 13"):
        list(walk(patched(8, ">i", 13, an_old_entry())))


def test_an_error_comes_after_the_batches_before_it() -> None:
    walked = walk(a_batch(0) + patched(16, ">b", 3))
    assert next(walked)[1].base_offset == 0
    with pytest.raises(WireError, match=f"byte {len(a_batch(0)) + 16}"):
        next(walked)


RECORDS: dict[str, tuple[bytes, Plain]] = {
    "key and value": (a_record(), (50, NOW, b"key", b"value")),
    "empty key and value": (a_record(key=b"", value=b""), (50, NOW, b"", b"")),
    "no key": (a_record(key=None), (50, NOW, None, b"value")),
    "no value (a tombstone)": (a_record(value=None), (50, NOW, b"key", None)),
    "behind the others": (a_record(300, timestamp_delta=86_400_000), (350, NOW + 86_400_000, b"key", b"value")),
    "stamped before the first": (a_record(timestamp_delta=-5), (50, NOW - 5, b"key", b"value")),
    "with headers": (a_record(headers=[("trace", b"1"), ("empty", None)]), (50, NOW, b"key", b"value")),
}


@pytest.mark.parametrize(("encoded", "record"), RECORDS.values(), ids=RECORDS.keys())
def test_a_record_is_read(encoded: bytes, record: Plain) -> None:
    assert the_records(a_batch(50, records=[encoded], last_offset_delta=300)) == [record]


@pytest.mark.parametrize(("delta", "last"), [(1, 0), (-1, 3), (301, 300)])
def test_a_record_outside_its_batch_is_an_error(delta: int, last: int) -> None:
    with pytest.raises(WireError, match=f"offset delta at byte .*: expected 0 to {last}.*, found {delta}"):
        the_records(a_batch(50, records=[a_record(delta)], last_offset_delta=last))


def test_the_records_of_a_batch_further_on_are_read_there() -> None:
    found = [
        (header.base_offset, len(list(records(SEGMENT, at, header))))
        for at, header in walk(SEGMENT)
        if not header.compression
    ]
    assert found == [(0, 2), (3, 1), (6, 1)]


def test_records_stamped_by_the_broker_have_the_time_they_were_appended() -> None:
    stamped = a_batch(count=2, attributes=LOG_APPEND_TIME, max_timestamp=NOW + 99)
    assert {timestamp for _, timestamp, *_ in the_records(stamped)} == {NOW + 99}
    horizon = a_batch(count=2, attributes=DELETE_HORIZON, max_timestamp=NOW + 99)
    assert {timestamp for _, timestamp, *_ in the_records(horizon)} == {NOW}, "deltas start at the horizon"


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    assert the_records(a_batch(records=(), last_offset_delta=4)) == []


def test_compressed_records_are_not_guessed() -> None:
    with pytest.raises(WireError, match="attributes at byte 21: expected no compression, found compression codec 3"):
        the_records(a_batch(codec=3))


def test_every_truncation_of_records_is_a_wire_error() -> None:
    whole = a_batch(records=[a_record(0, headers=[("trace", b"1")]), a_record(1, key=None)])
    header = the_header(whole)
    for size in range(HEADER_SIZE, len(whole)):
        with pytest.raises(WireError):
            list(records(whole[:size], 0, header))


def record_of(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(len(body)) + body


MALFORMED = {
    "bytes behind the last record": ([a_record() + b"\0\0\0"], "records at byte 76: .* 3 more bytes"),
    "a record longer than its length field": ([varint(3) + a_record()[1:]], "record length"),
    "a record shorter than its length field": ([varint(99) + a_record()[1:]], "record length"),
    "a header key without a length": ([record_of(b"\0\0\0\1\1", varint(1), varint(-1), varint(-1))], "header key"),
    "fewer headers than its count": ([record_of(b"\0\0\0\1\1", varint(9))], "header key length"),
    "a negative number of headers": ([record_of(b"\0\0\0\1\1", varint(-1))], "header count"),
    "a key that never ends": ([record_of(b"\0\0\0", varint(2**31 - 1))], "record key"),
    "a varint that never ends": ([b"\xff" * 12], "record length"),
}


@pytest.mark.parametrize(("encoded", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_records_are_a_wire_error(encoded: list[bytes], message: str) -> None:
    with pytest.raises(WireError, match=message):
        the_records(a_batch(records=encoded))


@pytest.mark.parametrize("count", [0, 2, -1, 2**31 - 1])
def test_a_record_count_that_is_not_so_is_a_wire_error(count: int) -> None:
    batch = bytearray(a_batch(count=1))
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(WireError):
        the_records(bytes(batch))


@pytest.mark.parametrize(
    "batch",
    [
        a_batch(90, count=3, producer_id=2**40, producer_epoch=7, leader_epoch=4, base_sequence=11),
        a_batch(90, records=[a_record(key=None, value=None, headers=[("a", b"1"), ("ä", None)])]),
        a_batch(90, count=2, attributes=LOG_APPEND_TIME, max_timestamp=NOW + 99),
        a_marker(90, commit=False, producer_epoch=3, coordinator_epoch=12),
    ],
    ids=["data", "headers and nulls", "stamped by the broker", "marker"],
)
def test_kafka_python_reads_our_batches_alike(batch: bytes) -> None:
    theirs = DefaultRecordBatch(batch)
    ours = the_header(batch)
    assert theirs.validate_crc()
    for name in ("base_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence", "last_offset"):
        assert getattr(theirs, name) == getattr(ours, name)
    assert (theirs.is_transactional, theirs.is_control_batch) == (ours.is_transactional, ours.is_control)
    assert [(found.offset, found.timestamp, found.key, found.value) for found in theirs] == the_records(batch)


Written = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
some_bytes = st.none() | st.binary(max_size=70)
some_headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=2)
some_records = st.lists(st.tuples(st.integers(0, 2**42), some_bytes, some_bytes, some_headers), min_size=1, max_size=3)


@given(
    written=some_records,
    producer_id=st.integers(0, 2**62),
    producer_epoch=st.integers(0, 2**15 - 1),
    transactional=st.booleans(),
)
def test_values_that_kafka_python_writes_are_read_unchanged(
    *, written: list[Written], producer_id: int, producer_epoch: int, transactional: bool
) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for delta, (timestamp, key, value, headers) in enumerate(written):
        builder.append(delta, timestamp, key, value, headers)
    batch = bytes(builder.build())
    header = the_header(batch)
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert header.is_transactional is transactional
    assert header.last_offset == len(written) - 1
    assert the_records(batch) == [(offset, *record[:3]) for offset, record in enumerate(written)]


def test_wherever_a_segment_is_cut_its_whole_entries_end_where_a_batch_does() -> None:
    entries = [a_batch(0), an_old_entry(1), a_batch(2, count=3), a_marker(5), an_old_entry(6)]
    ends = [0, *accumulate(len(entry) for entry in entries)]
    segment = b"".join(entries)
    for size in range(len(segment) + 1):
        expected = max(end for end in ends if end <= size)
        assert end_of_whole_entries(segment[:size]) == end_of_whole_entries(memoryview(segment)[:size]) == expected
