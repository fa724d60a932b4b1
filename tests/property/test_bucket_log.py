"""A bucket that is kept decoded against one that is read whole: whatever fails and is repeated, they are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from support.attempts import Query
from txnwatch.state.detection.awaited_producers import Awaited
from txnwatch.state.detection.look_times import Agenda
from txnwatch.state.store.bucket_log import KeptBucket

SEEDS, BATCHES = 25, 120


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
    assert seen["listed"] < SEEDS * BATCHES * 0.9, "the open transactions are not emitted at each barrier"


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


def shown_stays(kept: KeptBucket, *arguments: Any) -> None:
    shown = kept.bucket.shown
    _read(kept, *arguments)
    kept.bucket.shown = shown


_take, _read = KeptBucket._take, KeptBucket.read
_BUGS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "no token check": (KeptBucket, "lacks", without_tokens),
    "the index does not follow": (KeptBucket, "_place", nothing),
    "objects are not read again": (KeptBucket, "_take", keep_the_objects),
    "what was shown stays": (KeptBucket, "read", shown_stays),
    "who is idle stays in the index": (Awaited, "drop", nothing),
}


@pytest.mark.parametrize(("where", "name", "bug"), _BUGS.values(), ids=_BUGS.keys())
def test_a_planted_bug_is_found(where: type, name: str, bug: Callable[..., Any]) -> None:
    with mock.patch.object(where, name, bug), pytest.raises(AssertionError):
        run(SEEDS)


def test_an_agenda_whose_heap_does_not_follow_is_found() -> None:
    follow = KeptBucket._take

    def take(kept: KeptBucket, entry: bytes) -> None:
        with mock.patch.object(Agenda, "put", put_without_heap):
            follow(kept, entry)

    with mock.patch.object(KeptBucket, "_take", take), pytest.raises(AssertionError):
        run(SEEDS)
