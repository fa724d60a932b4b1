"""A snapshot of the producer state: what it shows, and which byte is wrong in a damaged one."""

from __future__ import annotations

import re

import pytest
from kafka.record.util import calc_crc32c

from support.snapshot_files import IDLE_PRODUCER, PRODUCER, a_snapshot
from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.snapshot_file import SnapshotProducer, crc32c, decode_snapshot

SNAPSHOT = a_snapshot([PRODUCER, IDLE_PRODUCER])


def test_a_snapshot_shows_where_the_open_transaction_of_a_producer_begins() -> None:
    assert decode_snapshot(SNAPSHOT) == [
        SnapshotProducer(7, 3, 41, 1_041, 1_700_000_000_000, 5, 1_040),
        SnapshotProducer(8, 0, None, None, None, None, None),
    ]
    assert decode_snapshot(a_snapshot([])) == []


@pytest.mark.parametrize("content", [b"", b"123456789", bytes(range(256)) * 3])
def test_the_checksum_is_the_crc_32c(content: bytes) -> None:
    assert crc32c(content) == calc_crc32c(content)


DAMAGED = {
    "cut": (SNAPSHOT[:-1], "size of the file at byte 101: expected 102 bytes"),
    "without a head": (SNAPSHOT[:9], "snapshot at byte 0: expected at least 10 bytes"),
    "of a later version": (
        a_snapshot(version=2),
        "expected 0 to 1 (if the broker is newer, upgrade txnwatch), found 2",
    ),
    "another file": (a_snapshot(version=300), "snapshot version at byte 0: expected 0 to 1, found 300"),
    "of a negative version": (a_snapshot(version=-1), "expected 0 to 1, found -1"),
    "with a count that is too large": (SNAPSHOT[:6] + b"\x7f\xff\xff\xff", "for 2147483647 producers"),
    "with a negative count": (SNAPSHOT[:6] + b"\xff\xff\xff\xff", "for -1 producers, found 10 bytes"),
    "with a changed byte": (SNAPSHOT[:-1] + b"\0", "checksum at byte 2: expected"),
}


@pytest.mark.parametrize(("data", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_snapshot_is_refused_with_its_byte(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=re.escape(message)):
        decode_snapshot(data)
