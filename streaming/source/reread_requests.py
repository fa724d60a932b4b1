"""The file with which the job asks its source to read ranges again and to describe partitions.

Spark has no feedback channel to a source. The driver process knows which ranges a task could not read, and which gaps
the state found later. The source's process, beside it on the same machine, plans the next range. A small file carries
the requests from one to the other. It is level-triggered: the state repeats an open gap in every batch until a re-read
closes it. So a lost or outdated file delays a re-read by one round, but loses nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from txnwatch.state.detection.open_transactions import UNOWNED
from txnwatch.state.model.findings import (
    CensusReason,
    CensusRequest,
    Finding,
    LastStableOffsetBlocked,
    OpenTransactions,
    OutstandingGap,
    ReadLimitReached,
)
from txnwatch.state.model.gap import Remedy
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.source.offsets import is_data


class RereadRequest(NamedTuple):
    """One request to the source. A batch may both read a partition again and describe it.

    Attributes:
        start: the offset to read again from. None: describe a data partition, or read a whole coordinator partition
            again.
        why: the reason for a producer snapshot. Each reason has its own backoff.
    """

    partition: TopicPartition
    start: Offset | None
    why: CensusReason | None = None


def census_of(partition: TopicPartition, why: CensusReason) -> RereadRequest:
    """A request for a producer snapshot of a partition."""
    return RereadRequest(partition, None, why)


def requests_after(emitted: Collection[Finding], doubted: Iterable[TopicPartition]) -> set[RereadRequest]:
    """The requests after a batch: gaps to read again, and partitions to describe.

    `emitted` has the open transactions of every bucket, including those emitted in earlier batches. `doubted` are
    partitions whose leader contradicted a candidate: the leader must describe them again.
    """
    requests = {census_of(partition, CensusReason.DOUBT) for partition in doubted}
    requests.update(census_of(partition, CensusReason.STANDING) for partition in _held_by_nobody_known(emitted))
    unread: dict[TopicPartition, Offset] = {}
    for finding in emitted:
        if isinstance(finding, CensusRequest):
            requests.add(census_of(finding.partition, finding.why))
        elif isinstance(finding, OutstandingGap | ReadLimitReached):
            start = finding.gap if isinstance(finding, OutstandingGap) else finding.from_offset
            if isinstance(start, Remedy):
                why = CensusReason.GAP if is_data(finding.partition) else None
                requests.add(RereadRequest(finding.partition, None, why))
            else:
                unread[finding.partition] = min(start, unread.get(finding.partition, start))
    return requests | {RereadRequest(partition, start) for partition, start in unread.items()}


def _held_by_nobody_known(emitted: Collection[Finding]) -> Iterator[TopicPartition]:
    """Partitions whose last stable offset does not move, and where no known transaction with an owner begins.

    If a known transaction with an owner begins there, it holds the offset: no two transactions begin at one offset. A
    snapshot would only show it again, and transactions above it that hold nothing yet.
    """
    standing = [finding for finding in emitted if isinstance(finding, LastStableOffsetBlocked)]
    if not standing:
        return
    open_now = (
        transaction
        for finding in emitted
        if isinstance(finding, OpenTransactions)
        for transaction in finding.transactions
    )
    owned = {
        (span.partition, span.start_offset)
        for transaction in open_now
        if transaction.state != UNOWNED
        for span in transaction.spans
    }
    for finding in standing:
        if (finding.partition, finding.offset) not in owned:
            yield finding.partition


def write_requests(path: Path, requests: Collection[RereadRequest]) -> None:
    """Replaces the requests."""
    rows = ([str(request.partition), request.start, request.why or ""] for request in requests)
    text = json.dumps(sorted(rows, key=json.dumps))
    try:
        if path.read_text() == text:
            return
    except (OSError, ValueError):
        pass
    replace_text(path, text)


def replace_text(path: Path, text: str) -> None:
    """Replaces a file atomically: a reader gets the whole old or the whole new content."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)  # noqa: PTH105 - atomic, also over an existing file


def read_requests(path: Path | None) -> set[RereadRequest]:
    """The requests; none if the file is missing or damaged."""
    if path is None:
        return set()
    try:
        return {
            RereadRequest(TopicPartition.parse(text), start, CensusReason(why) if why else None)
            for text, start, why in json.loads(path.read_text())
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return set()
