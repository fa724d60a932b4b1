"""A `__transaction_state` of many ids in one partition, chunk by chunk, as a leader would send it.

Every record is one that the encoders have written, with the offset, the number of the id and its producer id put in
place; so a million take seconds, and not minutes. The checksums are those of the patterns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from support.batches import TIMESTAMP_MS, a_batch, a_record
from support.transaction_log import a_key, a_value
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

_NUMBER, _PRODUCER_ID = "#" * 16, 0x0123456789ABCDEF
_STARTED_MS = TIMESTAMP_MS - 60_000
_EMPTY = TransactionLogValue(1, _PRODUCER_ID, 0, 60_000, S.EMPTY, None, TIMESTAMP_MS, None, _PRODUCER_ID)
_ONGOING = replace(
    _EMPTY,
    state=S.ONGOING,
    partitions=(("orders", (0, 1)), ("payments", (2,))),
    start_ms=_STARTED_MS,
    client_transaction_version=2,
)
_COMPLETE = replace(_ONGOING, state=S.COMPLETE_COMMIT, partitions=(), producer_epoch=1)


class _Pattern:
    def __init__(self, value: TransactionLogValue) -> None:
        record = a_record(key=a_key(f"app-{_NUMBER}"), value=a_value(value))
        whole = a_batch(0, records=[record], producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False)
        name, raw_id = _NUMBER.encode(), struct.pack(">q", _PRODUCER_ID)
        self._parts = [part.split(name) for part in whole[8:].split(raw_id)]
        self._name, self._id = name, raw_id

    def batch(self, offset: int, number: int) -> bytes:
        name = b"%016d" % number
        rest = struct.pack(">q", number).join(name.join(part) for part in self._parts)
        return struct.pack(">q", offset) + rest


def a_large_log(ids: int, *, live_every: int = 100, chunk_bytes: int = 8 << 20) -> Iterator[bytes]:
    """The records of `ids` ids in chunks of about some bytes; one in `live_every` is Ongoing, the others are idle.

    It is compacted: offsets go up by three, so there is a hole before every record but each tenth.
    """
    empty, ongoing, complete = _Pattern(_EMPTY), _Pattern(_ONGOING), _Pattern(_COMPLETE)
    chunk: list[bytes] = []
    size = offset = 0
    for number in range(ids):
        is_live = number % live_every == 0
        pattern = ongoing if is_live else complete if number % 2 else empty
        chunk.append(pattern.batch(offset, number))
        size += len(chunk[-1])
        offset += 1 if number % 10 == 9 else 3
        if size >= chunk_bytes:
            yield b"".join(chunk)
            chunk, size = [], 0
    yield b"".join(chunk)


def end_of_large_log(ids: int) -> int:
    """The offset behind its last record."""
    return sum(1 if number % 10 == 9 else 3 for number in range(ids - 1)) + 1
