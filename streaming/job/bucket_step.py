"""One step of one bucket: blobs of facts in, encoded findings out, changes to its log.

Apart: this imports what a task needs, and a process that only plans the query imports operator.py alone (decision
0032).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from txnwatch.state.detection.bucket import process
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.serializer import Serializer
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.store.bucket_log import TOKEN_BYTES, KeptBucket, LogStore, load
from txnwatch.streaming.source.rows import PARTITION_BUCKET, unpack_facts

# A worker process caches decoded buckets. A step takes its bucket out of the cache before it works on it, and puts it
# back after all writes, so a failed attempt leaves no bucket in the cache. A cached bucket may be from an attempt whose
# writes were not committed; `load` detects that.

FINDINGS = Serializer[Finding](Finding)  # of the rows for the driver (query.py)
Place = tuple[str, int]  # the run of the query, and the number of the bucket


def step(
    cache: dict[Place, KeptBucket], place: Place, packed: Iterable[bytes], store: LogStore, policy: DetectionPolicy
) -> list[bytes]:
    """Processes one batch of one bucket completely."""
    _, number = place
    facts = [fact for blob in packed for fact in unpack_facts(blob)]
    barrier = next(fact for fact in facts if isinstance(fact, Barrier))
    kept = load(cache.pop(place, None), store, number)
    emitted = process(kept.bucket, kept, facts, policy, reports_partitions=number == PARTITION_BUCKET)
    kept.write(store, os.urandom(TOKEN_BYTES), barrier.coordinator_listed_ms, policy.idle_retention_ms)
    cache[place] = kept
    return [FINDINGS.encode(finding) for finding in emitted]
