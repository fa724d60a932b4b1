"""Excludes the long-lived objects of a Spark Python worker from garbage collection.

PySpark's daemon runs a full collection after every task. A worker holds about 100,000 objects of loaded modules, and
one collection of them takes about 50 ms. The collector skips objects that `gc.freeze` has moved aside. The daemon has
just collected when a task starts, so only live objects are frozen. The collector is off during a task, because its
garbage is collected at its end.
"""

from __future__ import annotations

import gc

# The first tasks import the modules that later tasks use. A freeze in every task would keep cyclic garbage forever.
_TASKS_THAT_LOAD = 5
_WORTH_FREEZING = 1_000  # cached decoded producers, about six objects each, none in a cycle
_tasks = 0


def freeze_loaded_modules() -> None:
    """Freezes the objects of a worker, in its first few tasks only. Call it at the start of a task."""
    freeze_what_stays(0)


def freeze_what_stays(kept: int) -> None:
    """The same, and in every task of a worker that caches many decoded producers (`kept`)."""
    global _tasks  # noqa: PLW0603 - a worker process has one collector and outlives its tasks
    gc.disable()  # the daemon collects between the tasks
    if _tasks < _TASKS_THAT_LOAD or kept >= _WORTH_FREEZING:
        _tasks += 1
        gc.freeze()
