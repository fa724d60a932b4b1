"""What a worker keeps is frozen in nearly all tasks, and the cyclic garbage of its tasks does not pile up."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from txnwatch.streaming.source import worker_memory
from txnwatch.streaming.source.worker_memory import UNFROZEN_EVERY, freeze_what_stays

MANY_KEPT, FEW_KEPT = 10_000, 10


class OfTask:
    """An object that a task uses and that is in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _a_new_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory, "tasks_begun", 0)
    yield
    gc.unfreeze()
    gc.enable()


def run_task(kept: int) -> weakref.ref[OfTask]:
    """One task of a worker, and the collection that PySpark's daemon runs after it."""
    of_task = OfTask()
    found = weakref.ref(of_task)
    freeze_what_stays(kept)
    del of_task
    gc.collect()
    return found


@pytest.mark.parametrize(
    ("kept", "most"), [pytest.param(MANY_KEPT, UNFROZEN_EVERY, marks=pytest.mark.long), (FEW_KEPT, 5)]
)
def test_the_garbage_of_tasks_is_collected_in_the_end(kept: int, most: int) -> None:
    found, alive = list[weakref.ref[OfTask]](), list[int]()
    for _ in range(3 * UNFROZEN_EVERY):
        found.append(run_task(kept))
        alive.append(sum(one() is not None for one in found))
    assert 0 < max(alive) <= most
    assert alive[UNFROZEN_EVERY - 1 :: UNFROZEN_EVERY] == [0, 0, 0]


@pytest.mark.long
def test_nearly_all_collections_skip_what_is_kept() -> None:
    stays = [[one] for one in range(1_000)]
    frozen = [gc.get_freeze_count() >= len(stays) for _ in range(UNFROZEN_EVERY) if run_task(MANY_KEPT)]
    assert frozen.count(False) == 1
