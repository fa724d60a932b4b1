"""What all buckets have alike in the output of a micro-batch: the barrier, the time of the listing, and the clocks."""

from __future__ import annotations

from collections.abc import Iterable

from txnwatch.state.model.findings import BucketCount, Finding


def any_count(emitted: Iterable[Finding]) -> BucketCount | None:
    """The counts of one bucket; None if the micro-batch has evaluated none."""
    return next((finding for finding in emitted if isinstance(finding, BucketCount)), None)
