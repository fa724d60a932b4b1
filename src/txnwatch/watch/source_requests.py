"""Writes what the driver asks its source for: ranges and censuses to read again, and when the next barrier is due."""

from __future__ import annotations

from collections.abc import Sequence

from txnwatch.sinks.incidents.ledger import Ledger
from txnwatch.state.model.findings import BucketCount, Finding
from txnwatch.streaming.job.side_files import SideFiles
from txnwatch.streaming.source.idle_barriers import next_barrier_due, write_next_barrier
from txnwatch.streaming.source.reread_file import write_requests
from txnwatch.streaming.source.reread_requests import requests_after


def write_source_requests(files: SideFiles, emitted: Sequence[Finding], ledger: Ledger, buckets: int) -> None:
    """Writes both files after a micro-batch; `buckets` is the number of buckets of the state."""
    write_requests(files.rereads, requests_after(emitted, ledger.doubted))
    counts = [finding for finding in emitted if isinstance(finding, BucketCount)]
    due = next_barrier_due(counts, buckets, can_wait=ledger.can_wait)
    if due is not None:
        write_next_barrier(files.next_barrier, due)
