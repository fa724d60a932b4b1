"""Excludes the long-lived objects of a Spark Python worker from garbage collection.

The source and the operator share it, and a process that only plans imports nothing else of the source for it.
"""

from __future__ import annotations

import gc

# PySpark's daemon runs a full collection after every task. A worker holds about 100,000 objects of loaded modules, and
# one collection of them takes about 50 ms. With 10,000 cached decoded producers it takes 50 ms more. The collector
# skips objects that `gc.freeze` has moved aside. The collector is off during a task, because its garbage is collected
# at its end.
#
# A freeze also moves aside what the running task uses. What of it is in a cycle is garbage when the task ends, and no
# collection finds it. So the objects are unfrozen at intervals: the daemon's next collection finds the garbage of all
# tasks since the last time, and the next task freezes the rest again.

_TASKS_THAT_LOAD = 5  # the first tasks import the modules that later tasks use
_WORTH_FREEZING = 1_000  # cached decoded producers, about six objects each, none in a cycle
UNFROZEN_EVERY = 100  # tasks
tasks_begun = 0


def freeze_loaded_modules() -> None:
    """Freezes the objects of a worker, in a few tasks only. Call it at the start of a task."""
    freeze_what_stays(0)


def freeze_what_stays(kept: int) -> None:
    """The same, and in nearly every task of a worker that caches many decoded producers (`kept`)."""
    global tasks_begun  # noqa: PLW0603 - a worker process has one collector and outlives its tasks
    gc.disable()  # the daemon collects between the tasks
    place = tasks_begun % UNFROZEN_EVERY
    tasks_begun += 1
    if place == UNFROZEN_EVERY - 1:
        gc.unfreeze()
    elif place < _TASKS_THAT_LOAD or kept >= _WORTH_FREEZING:
        gc.freeze()
