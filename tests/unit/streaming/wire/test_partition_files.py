"""The small files of a partition: what they show, and which byte is wrong in a damaged one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pytest
from kafka.record.util import calc_crc32c

from support.partition_files import IDLE_PRODUCER, PRODUCER, a_snapshot, a_time_index, an_aborted_index, an_index
from txnwatch.state.model.errors import WireError
from txnwatch.streaming.wire.partition_files import (
    PartitionMetadata,
    SnapshotProducer,
    aborted_transactions,
    crc32c,
    decode_partition_metadata,
    decode_snapshot,
    epoch_starts,
    index_entries,
    time_index_entries,
)

SNAPSHOT = a_snapshot([PRODUCER, IDLE_PRODUCER])
INDEX = an_index((2, 81), (9, 300))
TIME_INDEX = a_time_index((1_000, 2), (1_005, 2), (1_006, 9))
ABORTED = an_aborted_index((7, 3, 5, 3), (8, 6, 9, 6))
EPOCHS = b"0\n2\n0 0\n4 1041\n"
METADATA = b"version: 0\ntopic_id: n4KqPpjbT2Wydc0rQq3Vhw"


def test_a_snapshot_shows_where_the_open_transaction_of_a_producer_begins() -> None:
    assert decode_snapshot(SNAPSHOT) == [
        SnapshotProducer(7, 3, 41, 1_041, 1, 1_700_000_000_000, 5, 1_040),
        SnapshotProducer(8, 0, None, None, 0, None, None, None),
    ]
    assert decode_snapshot(a_snapshot([])) == []


@pytest.mark.parametrize("content", [b"", b"123456789", bytes(range(256)) * 3])
def test_the_checksum_is_the_crc_32c(content: bytes) -> None:
    assert crc32c(content) == calc_crc32c(content)


def test_the_indexes_show_their_entries_up_to_the_room_that_is_not_used() -> None:
    assert [*index_entries(INDEX + bytes(80))] == [(2, 81), (9, 300)]
    assert [*time_index_entries(TIME_INDEX + bytes(120))] == [(1_000, 2), (1_005, 2), (1_006, 9)]
    assert [*index_entries(bytes(80))] == [*time_index_entries(b"")] == [*aborted_transactions(b"")] == []
    assert [*aborted_transactions(ABORTED)] == [(7, 3, 5, 3), (8, 6, 9, 6)]


def test_the_text_files_show_epochs_and_the_topic_id() -> None:
    assert [*epoch_starts(EPOCHS)] == [(0, 0), (4, 1_041)]
    assert [*epoch_starts(b"0\r\n0\r\n")] == []
    assert decode_partition_metadata(METADATA) == PartitionMetadata(0, "n4KqPpjbT2Wydc0rQq3Vhw")


DAMAGED: dict[str, tuple[Callable[[bytes], Iterable[object]], bytes, str]] = {
    "a snapshot that is cut": (decode_snapshot, SNAPSHOT[:-1], "size of the file at byte 101: expected 102 bytes"),
    "a snapshot without a head": (decode_snapshot, SNAPSHOT[:9], "snapshot at byte 0: expected at least 10 bytes"),
    "a later snapshot": (
        decode_snapshot,
        a_snapshot(version=2),
        "expected 0 to 1 (if the broker is newer, upgrade txnwatch), found 2",
    ),
    "another file": (
        decode_snapshot,
        a_snapshot(version=300),
        "snapshot version at byte 0: expected 0 to 1, found 300",
    ),
    "a negative version": (
        aborted_transactions,
        an_aborted_index((7, 3, 5, 3), version=-1),
        "expected 0 to 0, found -1",
    ),
    "a count that is too large": (decode_snapshot, SNAPSHOT[:6] + b"\x7f\xff\xff\xff", "for 2147483647 producers"),
    "a negative count": (decode_snapshot, SNAPSHOT[:6] + b"\xff\xff\xff\xff", "for -1 producers, found 10 bytes"),
    "a changed byte": (decode_snapshot, SNAPSHOT[:-1] + b"\0", "checksum at byte 2: expected"),
    "half an entry": (index_entries, INDEX[:-3], "entry at byte 8: expected 8 bytes, found 5 bytes left"),
    "offsets that fall": (index_entries, an_index((9, 81), (2, 300)), "offset and position at byte 8"),
    "positions that fall": (index_entries, an_index((2, 300), (9, 81)), "offset and position at byte 8"),
    "a negative offset": (index_entries, an_index((-2, 300)), "offset and position at byte 0"),
    "zeros between entries": (index_entries, INDEX + bytes(8) + INDEX, "entry at byte 16: expected only zeros"),
    "times that fall": (time_index_entries, a_time_index((9, 1), (8, 2)), "timestamp and offset at byte 12"),
    "time, offsets that fall": (time_index_entries, a_time_index((8, 3), (9, 2)), "timestamp and offset at byte 12"),
    "zeros between times": (time_index_entries, TIME_INDEX + bytes(12) + TIME_INDEX, "entry at byte 36"),
    "half a time": (time_index_entries, TIME_INDEX[:-1], "entry at byte 24: expected 12 bytes, found 11 bytes left"),
    "an end before its begin": (aborted_transactions, an_aborted_index((7, 5, 3, 3)), "last stable offset at byte 0"),
    "a negative producer id": (aborted_transactions, an_aborted_index((-7, 3, 5, 3)), "found -7, 3, 5, 3"),
    "a negative stable offset": (aborted_transactions, an_aborted_index((7, 3, 5, -1)), "found 7, 3, 5, -1"),
    "a later index": (
        aborted_transactions,
        an_aborted_index((7, 3, 5, 3), version=1),
        "expected 0 to 0 (if the broker is newer, upgrade txnwatch), found 1",
    ),
    "half a transaction": (aborted_transactions, ABORTED[:-1], "entry at byte 34: expected 34 bytes, found 33 bytes"),
    "a later checkpoint": (epoch_starts, b"1\n0\n", "head at byte 0: expected the version 0"),
    "a count that is no number": (epoch_starts, b"0\nx\n", "head at byte 0"),
    "an empty checkpoint": (epoch_starts, b"", "head at byte 0"),
    "a line of three": (epoch_starts, b"0\n1\n0 0 0\n", "line at byte 4: expected a leader epoch above -1"),
    "epochs that fall": (epoch_starts, b"0\n2\n4 0\n3 9\n", "line at byte 8: expected a leader epoch above 4"),
    "a line that is missing": (epoch_starts, b"0\n3\n4 0\n5 9\n", "end of the file at byte 12: expected '3' lines"),
    "a huge count": (epoch_starts, b"0\n" + b"9" * 5_000 + b"\n", "end of the file"),
    "no topic id": (decode_partition_metadata, b"version: 0\n", "content at byte 0: expected version: 0 and topic_id"),
}


@pytest.mark.parametrize(("decode", "data", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_refused_with_its_byte(
    decode: Callable[[bytes], Iterable[object]], data: bytes, message: str
) -> None:
    with pytest.raises(WireError, match=re.escape(message)):
        list(decode(data))


def test_the_entries_before_the_damage_are_shown() -> None:
    entries = index_entries(INDEX + b"\0\1")
    assert [next(entries), next(entries)] == [(2, 81), (9, 300)]
    with pytest.raises(WireError, match="2 bytes left"):
        next(entries)
