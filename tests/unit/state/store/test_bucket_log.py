"""When buckets write their snapshots, what is written of offsets that stand, and who knows the last open list."""

from __future__ import annotations

from collections import Counter

import pytest

from support.attempts import Version, Writing
from txnwatch.state.detection.open_transactions import must_emit
from txnwatch.state.detection.reading import Reading, Standing
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.findings import OpenTransactions
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.values import BarrierNumber, PartitionOffset, TopicPartition
from txnwatch.state.store.bucket_log import MAX_ENTRIES, SMALL_LOG, TOKEN_BYTES, KeptBucket, load

BUCKETS, TOKEN, NEVER_REMOVED_MS = 16, bytes(TOKEN_BYTES), 10**12
IDLE, CHANGING = 8_000, 150
STANDING = 1_000


def snapshots(number: int, batches: int) -> list[int]:
    """The batches in which a bucket with many idle producers writes a snapshot; in each batch some others change."""
    kept, version, found = KeptBucket(number), Version(), list[int]()
    for producer_id in range(IDLE):
        kept.put(ProducerState(producer_id))
    for batch in range(batches):
        for step in range(CHANGING):
            kept.put(ProducerState((batch * CHANGING + step) % IDLE))
        store = Writing(version)
        kept.write(store, TOKEN, batch, NEVER_REMOVED_MS)
        version = store.version
        if store.has_snapshot and batch:
            found.append(batch)
    return found


def test_buckets_that_change_equally_write_their_snapshots_in_different_batches() -> None:
    found = [snapshots(number, MAX_ENTRIES) for number in range(BUCKETS)]
    firsts = [batches[0] for batches in found]
    assert len(set(firsts)) == BUCKETS
    assert max(firsts) < MAX_ENTRIES / 2, "they are due to the bytes, not to the number of entries"
    assert max(Counter(batch for batches in found for batch in batches).values()) <= 2
    assert found[3] == snapshots(3, MAX_ENTRIES), "a replay has the same result"


def test_a_list_that_another_worker_has_replaced_is_emitted_again() -> None:
    store, empty, blocked = Writing(Version()), OpenTransactions(0, ()), (PartitionOffset(partition(0), 5),)
    one = load(None, store, 0)
    assert must_emit(one.bucket, empty, BarrierNumber(1))
    one.write(store, b"the one.", 1, NEVER_REMOVED_MS)
    other = load(None, store, 0)
    assert must_emit(other.bucket, OpenTransactions(0, (), blocked), BarrierNumber(2))
    other.write(store, b"another.", 2, NEVER_REMOVED_MS)
    assert load(one, store, 0) is one
    assert must_emit(one.bucket, empty, BarrierNumber(3))


def attempt(version: Version, token: bytes, producer_id: int) -> Version:
    """What an attempt at a micro-batch stores; it knows the version before."""
    store = Writing(version)
    kept = load(None, store, 0)
    kept.put(ProducerState(producer_id))
    kept.write(store, token, 1, NEVER_REMOVED_MS)
    return store.version


@pytest.mark.parametrize(("mixed", "why"), [({}, "lacks entry 2"), ({2: "first"}, "has another entry 2")])
@pytest.mark.parametrize("is_kept", [True, False])
def test_files_of_two_attempts_at_a_micro_batch_are_refused(mixed: dict[int, str], why: str, *, is_kept: bool) -> None:
    before = attempt(Version(), b"before..", 1)
    kept = load(None, Writing(before), 0) if is_kept else None
    attempts = {name: attempt(before, name.encode().ljust(TOKEN_BYTES), 2) for name in ("first", "second")}
    entries = {1: before.entries[1], **{number: attempts[name].entries[number] for number, name in mixed.items()}}
    with pytest.raises(CheckpointError, match=f"{why}, .* give a new --checkpoint directory"):
        load(kept, Writing(Version(attempts["second"].stored_head, entries)), 0)


def partition(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def stands(offset: int, since_ms: int) -> Reading:
    return Reading(standing=Standing(offset, since_ms))


def test_a_last_stable_offset_that_moves_costs_the_same_however_many_stand() -> None:
    kept, version = KeptBucket(0), Version()
    kept.bucket.readings = {partition(number): stands(number, 0) for number in range(STANDING)}
    for batch in (1, 2, 3):
        store = Writing(version)
        kept.write(store, TOKEN, batch, NEVER_REMOVED_MS)
        version = store.version
        kept.bucket.readings[partition(batch)] = stands(10**6, batch)
    snapshot, *later = (len(entry) for _, entry in sorted(version.entries.items()))
    assert len(later) == 2
    assert max(later) * 100 < snapshot < SMALL_LOG
    del kept.bucket.readings[partition(9)]
    store = Writing(version)
    kept.write(store, TOKEN, 4, NEVER_REMOVED_MS)
    assert load(None, store, 0).bucket.readings == kept.bucket.readings


def test_what_stands_unchanged_is_not_written() -> None:
    kept, store = KeptBucket(0), Writing(Version())
    kept.bucket.readings = {partition(number): stands(number, 0) for number in range(STANDING)}
    kept.write(store, TOKEN, 1, NEVER_REMOVED_MS)
    kept.bucket.readings = {partition(number): stands(number, 0) for number in range(STANDING)}
    kept.write(store, TOKEN, 2, NEVER_REMOVED_MS)
    assert store.version.entries.keys() == {1}
