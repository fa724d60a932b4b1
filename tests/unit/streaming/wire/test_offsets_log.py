"""The keys of `__consumer_offsets`, from the format alone: each version, each truncation, and names that are none."""

from __future__ import annotations

import struct

import pytest

from support.pending_offsets import an_offset_key
from txnwatch.state.model.errors import WireError
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.wire.internal_topics import CommittedKey, decode_offset_key

KEY = an_offset_key("billing", "orders", 3)


@pytest.mark.parametrize("version", [0, 1])
def test_a_key_names_the_group_and_the_partition(version: int) -> None:
    found = decode_offset_key(an_offset_key("caf\u00e9", "orders", 3, version=version))
    assert found == CommittedKey("caf\u00e9", TopicPartition("orders", 3))


def test_the_bytes_of_a_broker_are_decoded() -> None:
    raw = bytes.fromhex("0001 0007 62696c6c696e67 0006 6f7264657273 00000003")
    assert raw == KEY
    assert decode_offset_key(raw) == CommittedKey("billing", TopicPartition("orders", 3))


@pytest.mark.parametrize("version", [2, 3, 8, -1])
def test_a_key_about_something_else_is_none(version: int) -> None:
    assert decode_offset_key(struct.pack(">h", version) + b"\0\1g") is None


@pytest.mark.parametrize("size", range(len(KEY)))
def test_a_key_that_is_cut_off_is_an_error(size: int) -> None:
    with pytest.raises(WireError):
        decode_offset_key(KEY[:size])


BROKEN = {
    "bytes left over": KEY + b"\0",
    "a topic that cannot exist": an_offset_key("billing", "a b", 3),
    "no topic": an_offset_key("billing", "", 3),
    "a negative partition": an_offset_key("billing", "orders", -1),
    "a group that is no text": b"\0\1\0\1\xff" + KEY[11:],
}


@pytest.mark.parametrize("key", BROKEN.values(), ids=BROKEN.keys())
def test_a_key_that_no_coordinator_writes_is_an_error(key: bytes) -> None:
    with pytest.raises(WireError):
        decode_offset_key(key)
