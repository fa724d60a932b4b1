"""Holes of `__transaction_state`: offsets that compaction has removed. State is never carried across a hole."""

from __future__ import annotations

from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.wire.record_batch import BatchHeader


def last_hole_end(before: Offset, position: Offset, header: BatchHeader) -> Offset:
    """Where the last hole up to and including a batch ends; `before` is where the last one before the batch ended.

    `position` is the offset that should come next. A batch that has lost some of its own records is a hole too.
    """
    if header.record_count <= header.last_offset_delta:
        return header.last_offset + 1
    return header.base_offset if header.base_offset > position else before
