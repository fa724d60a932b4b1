"""The small files of a partition's directory as bytes, written down from Kafka's classes alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kafka.record.util import calc_crc32c

PRODUCER = (7, 3, 41, 1_041, 1, 1_700_000_000_000, 5, 1_040)  # id .. first offset of the open transaction
IDLE_PRODUCER = (8, 0, -1, -1, 0, -1, -1, -1)


def a_snapshot(producers: Iterable[tuple[int, ...]] = (PRODUCER,), *, version: int = 1) -> bytes:
    """A snapshot of the producer state; a producer is its fields in the order of the file."""
    encoded = [struct.pack(">qhiqiqiq", *producer) for producer in producers]
    body = struct.pack(">i", len(encoded)) + b"".join(encoded)
    return struct.pack(">hI", version, calc_crc32c(body)) + body


def an_index(*entries: tuple[int, int]) -> bytes:
    """An offset index: relative offset and position of each entry."""
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def a_time_index(*entries: tuple[int, int]) -> bytes:
    """A time index: timestamp and relative offset of each entry."""
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def an_aborted_index(*entries: tuple[int, int, int, int], version: int = 0) -> bytes:
    """An index of aborted transactions: producer id, first, last and last stable offset of each."""
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)
