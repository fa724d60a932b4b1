"""Last stable offsets that do not move: since when, and which of them are blocked.

A last stable offset below the end of its partition is reported in each batch that reads the partition. The bucket that
reports on partitions keeps it until it is not reported for a while: it has reached the end, or nothing is written above
it.

Law: an offset that does not move and is reported in every batch changes nothing that is stored. So the time of the last
report is not kept, only the time of the first barrier without one.
"""

from __future__ import annotations

from txnwatch.state.detection.batch import Batch
from txnwatch.state.detection.bucket_state import BucketState, Standing
from txnwatch.state.model.findings import BlockedOffset
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.quantities import TimestampMs


def note_last_stable(bucket: BucketState, batch: Batch, policy: DetectionPolicy) -> None:
    """Records what the batch reports about last stable offsets."""
    now_ms, reported = batch.barrier.coordinator_listed_ms, set()
    for stable in batch.last_stable:
        reported.add(stable.partition)
        known = bucket.standing.get(stable.partition)
        if known is None or known.offset != stable.offset:
            bucket.standing[stable.partition] = Standing(stable.offset, now_ms)
        elif not known.is_repeated or known.silent_ms is not None:
            bucket.standing[stable.partition] = known._replace(is_repeated=True, silent_ms=None)
    for partition, standing in list(bucket.standing.items()):
        if partition in reported:
            continue
        if standing.silent_ms is None:
            bucket.standing[partition] = standing._replace(silent_ms=now_ms)
        elif now_ms - standing.silent_ms >= policy.blocked_offset_ms:
            del bucket.standing[partition]


def blocked_offsets(bucket: BucketState, now_ms: TimestampMs, policy: DetectionPolicy) -> tuple[BlockedOffset, ...]:
    """Those that have not moved for a while; the transaction that holds one may be in any bucket.

    One report alone does not count: a transaction that ended before the next batch also leaves one.
    """
    return tuple(
        BlockedOffset(partition, standing.offset)
        for partition, standing in sorted(bucket.standing.items())
        if standing.is_repeated and now_ms - standing.since_ms >= policy.blocked_offset_ms
    )
