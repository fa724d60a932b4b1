"""A snapshot of the producer state as bytes, written down from Kafka's class alone."""

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
