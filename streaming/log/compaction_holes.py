"""Holes of `__transaction_state`: offsets that compaction has emptied. What lies below one does not lead past it."""

from __future__ import annotations

from txnwatch.streaming.wire.record_batch import BatchHeader


def whole_from(before: int, position: int, header: BatchHeader) -> int:
    """The offset from which on nothing is missing up to a batch's records, after what was so `before` it.

    `position` is the offset that should come next. A batch that has lost some of its own records counts as missing.
    """
    if header.record_count <= header.last_offset_delta:
        return header.last_offset + 1
    return header.base_offset if header.base_offset > position else before
