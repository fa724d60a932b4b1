"""A bucket that is kept decoded against one that is read whole: whatever fails and is repeated, they are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from support.attempts import USUAL_CHANGES, Query
from support.seeds import in_proportion
from txnwatch.state.detection import open_transactions
from txnwatch.state.detection.bucket_indexes import Agenda, Awaited
from txnwatch.state.store.bucket_log import KeptBucket

SEEDS, BATCHES = in_proportion(4), 120
LONG, RETENTION_MS = 550, 5_000  # ten batches
FEW_CHANGES, FEWER_CHANGES = (0, 0, 0, 1), (*(0,) * 20, 1)


def run(seeds: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(seeds):
        query = Query(seed)
        for _ in range(BATCHES):
            query.batch()
        seen += query.seen
    return seen


def test_failed_and_repeated_attempts_leave_no_trace() -> None:
    seen = run(SEEDS)
    assert seen["failed"] > SEEDS * BATCHES / 4
    assert seen["as it was kept"] > SEEDS * BATCHES / 3
    assert seen["read anew"] > SEEDS * BATCHES / 10
    assert seen["gone back"] > SEEDS
    assert seen["blocked"] > SEEDS * BATCHES / 10
    assert seen["listed"] < SEEDS * BATCHES * 0.9, "the open transactions are not emitted at each barrier"
    assert seen["offsets by census"] > SEEDS * BATCHES / 4
    assert SEEDS < seen["offsets by census, emitted"] < SEEDS * BATCHES / 4, "only a census can change them"


def test_a_full_open_list_is_the_same_however_the_bucket_was_read() -> None:
    with mock.patch.object(open_transactions, "FOLLOWED", 4), mock.patch.object(open_transactions, "HOLDING", 2):
        seen = run(5)
    assert seen["as it was kept"] > 0
    assert seen["read anew"] > 0
    assert seen["holders"] > 5 * BATCHES / 2
    assert seen["listed"] < 5 * BATCHES * 0.9, "the open transactions are not emitted at each barrier"


def run_long() -> Counter[str]:
    """Logs that grow until a snapshot replaces them, by their bytes and by their entries; idle producers leave."""
    seen: Counter[str] = Counter()
    for seed, changes in enumerate((USUAL_CHANGES, FEW_CHANGES, FEWER_CHANGES)):
        query = Query(seed, RETENTION_MS, changes)
        for _ in range(LONG):
            query.batch()
        seen += query.seen
    return seen


def test_idle_producers_leave_long_logs_and_no_others() -> None:
    seen = run_long()
    assert seen["a snapshot of a large log"] > 2
    assert seen["a snapshot of a long log"] >= 1
    assert seen["removed"] > 10


def without_tokens(kept: KeptBucket, sequence: int, tokens: list[bytes]) -> range | None:
    first = sequence - len(tokens) + 1
    fits = kept._tokens and first <= kept._sequence <= sequence
    return range(kept._sequence + 1, sequence + 1) if fits else None


def put_without_heap(agenda: Agenda, producer_id: int, when_ms: int) -> None:
    agenda._times[producer_id] = when_ms


def nothing(*_: Any) -> None:
    pass


def keep_the_objects(kept: KeptBucket, entry: bytes) -> None:
    objects = dict(kept._objects)
    _take(kept, entry)
    kept._objects = objects


def standing_is_not_read(kept: KeptBucket, entry: bytes) -> None:
    readings = dict(kept.bucket.readings)
    _take(kept, entry)
    kept.bucket.readings = readings


def holders_are_not_read(kept: KeptBucket, entry: bytes) -> None:
    holding = dict(kept.bucket.holding)
    _take(kept, entry)
    kept.bucket.holding = holding


_take = KeptBucket._take
_BUGS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "no token check": (KeptBucket, "lacks", without_tokens),
    "the index does not follow": (KeptBucket, "_place", nothing),
    "objects are not read again": (KeptBucket, "_take", keep_the_objects),
    "what stands is not read again": (KeptBucket, "_take", standing_is_not_read),
    "who is idle stays in the index": (Awaited, "drop", nothing),
}


@pytest.mark.parametrize(("where", "name", "bug"), _BUGS.values(), ids=_BUGS.keys())
def test_a_planted_bug_is_found(where: type, name: str, bug: Callable[..., Any]) -> None:
    with mock.patch.object(where, name, bug), pytest.raises(AssertionError):
        run(SEEDS)


def test_holders_that_are_not_read_again_are_found() -> None:
    with (
        mock.patch.object(open_transactions, "FOLLOWED", 4),
        mock.patch.object(open_transactions, "HOLDING", 2),
        mock.patch.object(KeptBucket, "_take", holders_are_not_read),
        pytest.raises(AssertionError),
    ):
        run(SEEDS)


def test_an_agenda_whose_heap_does_not_follow_is_found() -> None:
    follow = KeptBucket._take

    def take(kept: KeptBucket, entry: bytes) -> None:
        with mock.patch.object(Agenda, "put", put_without_heap):
            follow(kept, entry)

    with mock.patch.object(KeptBucket, "_take", take), pytest.raises(AssertionError):
        run(SEEDS)


def forget_what_is_open(kept: KeptBucket, before_ms: int) -> None:
    with mock.patch.object(kept.bucket, "agenda", {}):
        _forget(kept, before_ms)


def times_are_not_read(kept: KeptBucket, entry: bytes) -> None:
    times = dict(kept._written_ms)
    _take(kept, entry)
    kept._written_ms = dict.fromkeys(kept._rows, 0) | times


_forget = KeptBucket._forget_idle
_BUGS_OF_RETENTION: dict[str, tuple[str, Callable[..., Any]]] = {
    "nothing is forgotten": ("_forget_idle", nothing),
    "what is open is forgotten": ("_forget_idle", forget_what_is_open),
    "times of writing are not read": ("_take", times_are_not_read),
    "no snapshot": ("_needs_snapshot", lambda kept: not kept._tokens),
}


@pytest.mark.parametrize(("name", "bug"), _BUGS_OF_RETENTION.values(), ids=_BUGS_OF_RETENTION.keys())
def test_a_planted_bug_of_retention_is_found(name: str, bug: Callable[..., Any]) -> None:
    with mock.patch.object(KeptBucket, name, bug), pytest.raises(AssertionError):
        run_long()
