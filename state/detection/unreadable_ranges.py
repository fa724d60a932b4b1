"""Ranges that their leader lists and repeatedly cannot read: a bad disk, remote storage that does not answer.

Law: a data range that failed several times over a while counts as lost. Then a census can make its partition complete.
Without this rule, the partition would never be complete. If the log can be read again later, nothing is wrong: the
census has shown what was open. No census can replace the coordinators' log: it is retried for ever with growing pauses,
and what depends on it stays unproven.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.batch import Batch
from txnwatch.state.detection.bucket_state import BucketState, Failing
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.quantities import TimestampMs


def give_up(bucket: BucketState, batch: Batch, policy: DetectionPolicy) -> None:
    """Turns the notices of ranges that have failed for too long into notices of lost ranges."""
    failed = {notice.partition for notice in batch.notices if notice.kind is NoticeKind.GAP}
    over = {notice.partition for notice in batch.notices if notice.kind is NoticeKind.DELETED}
    for partition in (batch.barrier.reread.keys() - failed) | over:
        bucket.failing.pop(partition, None)
    batch.notices = [
        _looked_at(bucket, notice, batch.barrier.coordinator_listed_ms, policy) for notice in batch.notices
    ]


def _looked_at(
    bucket: BucketState, notice: PartitionNotice, now_ms: TimestampMs, policy: DetectionPolicy
) -> PartitionNotice:
    partition = notice.partition
    if notice.kind is not NoticeKind.GAP:
        return notice
    if partition.topic == TRANSACTION_STATE_TOPIC:
        return replace(
            notice, detail=f"{notice.detail}; a census cannot replace this log: verdicts that need it are unproven"
        )
    known = bucket.failing.get(partition, Failing(0, now_ms))
    times, for_ms = known.times + 1, now_ms - known.since_ms
    if times < policy.unreadable_tries or for_ms < policy.unreadable_ms:
        bucket.failing[partition] = Failing(times, known.since_ms)
        return notice
    bucket.failing.pop(partition, None)
    detail = f"given up after {times} tries in {for_ms // 1000} s; a census will show what is open: {notice.detail}"
    return replace(notice, kind=NoticeKind.LOST, detail=detail, is_decode_failure=False)
