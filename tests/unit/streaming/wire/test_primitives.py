"""The cursor over encoded values: what it reads, where it stands afterwards, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.primitives import Reader

Read = Callable[[Reader, str], Any]

VALUES: dict[str, tuple[str, Read, object]] = {
    "int8": ("7f", Reader.int8, 127),
    "int8, negative": ("80", Reader.int8, -128),
    "int16": ("0102", Reader.int16, 258),
    "int16, negative": ("ffff", Reader.int16, -1),
    "int32": ("00010000", Reader.int32, 65_536),
    "int32, smallest": ("80000000", Reader.int32, -(2**31)),
    "int64": ("0000000100000000", Reader.int64, 2**32),
    "int64, smallest": ("8000000000000000", Reader.int64, -(2**63)),
    "unsigned varint, zero": ("00", Reader.unsigned_varint, 0),
    "unsigned varint, last of one byte": ("7f", Reader.unsigned_varint, 127),
    "unsigned varint, first of two bytes": ("8001", Reader.unsigned_varint, 128),
    "unsigned varint, low group first": ("ac02", Reader.unsigned_varint, 300),
    "unsigned varint, largest": ("ffffffff0f", Reader.unsigned_varint, 2**32 - 1),
    "varint, zero": ("00", Reader.varint, 0),
    "varint, minus one": ("01", Reader.varint, -1),
    "varint, one": ("02", Reader.varint, 1),
    "varint, two bytes": ("d804", Reader.varint, 300),
    "varint, 64 bits": ("feffffffffffffffff01", Reader.varint, 2**63 - 1),
    "varint, 64 bits negative": ("ffffffffffffffffff01", Reader.varint, -(2**63)),
    "string": ("0003 c3a474", Reader.string, "ät"),
    "string, empty": ("0000", Reader.string, ""),
    "compact string": ("03 7476", Reader.compact_string, "tv"),
    "compact string, empty": ("01", Reader.compact_string, ""),
    "tagged fields": ("02 00 01 aa 63 02 bbcc", Reader.tagged_fields, {0: b"\xaa", 99: b"\xbb\xcc"}),
    "tagged fields, none": ("00", Reader.tagged_fields, {}),
}


@pytest.mark.parametrize(("encoded", "read", "value"), VALUES.values(), ids=VALUES.keys())
def test_a_value_is_read_and_the_cursor_is_after_it(encoded: str, read: Read, value: object) -> None:
    raw = bytes.fromhex(encoded)
    reader = Reader(b"\xee" + raw + b"\xee\xee", position=1)
    assert read(reader, "field") == value
    assert reader.position == 1 + len(raw)
    assert reader.remaining == 2


@pytest.mark.parametrize(("encoded", "read"), [case[:2] for case in VALUES.values()], ids=VALUES.keys())
def test_every_truncation_names_the_field(encoded: str, read: Read) -> None:
    raw = bytes.fromhex(encoded)
    for size in range(len(raw)):
        with pytest.raises(WireError) as caught:
            read(Reader(raw[:size]), "owner")
        assert caught.value.field == "owner"
        assert 0 <= caught.value.position <= size


HOSTILE: dict[str, tuple[str, Read, str]] = {
    "string of negative length": ("ffff 00", Reader.string, "a length of -1"),
    "string longer than the value": ("7fff 00", Reader.string, "a length of 32767"),
    "compact string that is null": ("00 00", Reader.compact_string, "a length of -1"),
    "compact string longer than the value": ("ffffffff0f 00", Reader.compact_string, "a length of 4294967294"),
    "string that is no UTF-8": ("0002 c328", Reader.string, "expected UTF-8 text"),
    "compact string that is no UTF-8": ("02 ff", Reader.compact_string, "expected UTF-8 text"),
    "unsigned varint of six bytes": ("808080808000", Reader.unsigned_varint, "at most 5 bytes"),
    "varint of eleven bytes": ("80" * 10 + "00", Reader.varint, "at most 10 bytes"),
    "tag longer than the value": ("01 00 05 aa", Reader.tagged_fields, "a length of 5"),
    "more tags than there are bytes": ("ffffffff0f 00 00", Reader.tagged_fields, "the end of the value"),
}


@pytest.mark.parametrize(("encoded", "read", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_value_is_refused(encoded: str, read: Read, message: str) -> None:
    with pytest.raises(WireError, match=message):
        read(Reader(bytes.fromhex(encoded)), "field")


def test_an_error_names_where_the_value_began() -> None:
    reader = Reader(b"\0" * 6)
    reader.int32("first")
    with pytest.raises(WireError, match="second at byte 4: expected 8 bytes, found 2 bytes left"):
        reader.int64("second")
    assert reader.position == 4, "a failed read takes nothing"


def test_taken_bytes_are_a_view_and_no_copy() -> None:
    buffer = bytearray(b"abcdef")
    taken = Reader(memoryview(buffer), position=1).take(3, "part")
    buffer[1:4] = b"XYZ"
    assert bytes(taken) == b"XYZ"


@pytest.mark.parametrize("size", [-1, 4, 2**31])
def test_no_more_is_taken_than_there_is(size: int) -> None:
    with pytest.raises(WireError, match="expected 0 to 3 bytes"):
        Reader(b"abc").take(size, "part")


def test_an_array_reads_its_items_in_order() -> None:
    reader = Reader(bytes.fromhex("0001 0002 0003"))
    assert reader.array(3, lambda: reader.int16("item"), "items") == (1, 2, 3)


@pytest.mark.parametrize("size", [-1, 3, 2**31 - 1])
def test_an_array_larger_than_its_bytes_fails_before_the_first_item(size: int) -> None:
    read: list[int] = []
    with pytest.raises(WireError, match=f"a count of {size}"):
        Reader(b"\0\0").array(size, lambda: read.append(1), "items")
    assert read == []


def test_the_end_is_expected_where_the_value_ends() -> None:
    reader = Reader(b"\1\2")
    with pytest.raises(WireError, match="value at byte 0: expected the end of the value, found 2 more bytes"):
        reader.expect_end("value")
    reader.int16("value")
    reader.expect_end("value")


def test_a_cursor_that_starts_behind_the_end_reads_nothing() -> None:
    for read in (Reader.int8, Reader.unsigned_varint, Reader.expect_end):
        with pytest.raises(WireError):
            read(Reader(b"abc", position=4), "field")
