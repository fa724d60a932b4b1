"""The file with which the job asks its source to read ranges again and to describe partitions.

Spark has no feedback channel to a source. The driver process knows which ranges a task could not read, and which gaps
the state found later. The source's process, beside it on the same machine, plans the next range. A small file carries
the requests from one to the other. It is level-triggered: the state repeats an open gap in every batch until a re-read
closes it. So a lost or outdated file delays a re-read by one round, but loses nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from txnwatch.state.model.findings import CensusReason
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.source.reread_requests import RereadRequest

_ROWS = msgspec.json.Decoder(list[tuple[str, Offset | None, str]])


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
            for text, start, why in _ROWS.decode(path.read_text())
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return set()
