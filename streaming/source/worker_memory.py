"""Keeps the garbage collector of a Spark Python worker away from what the worker has loaded, and keeps.

PySpark's daemon runs a full collection after every task. A worker holds about 100,000 objects of loaded modules, and
one collection of them takes some 50 ms. Objects that `gc.freeze` has moved aside are not walked again. The daemon has
just collected when a task starts, so that nothing but live objects is moved. So there is nothing to collect in the
middle of a task either: what one leaves behind is collected at its end.
"""

from __future__ import annotations

import gc

# The first tasks import what the later ones use. To freeze in every task would keep cyclic garbage for ever.
_TASKS_THAT_LOAD = 5
_WORTH_FREEZING = 1_000  # producers that are kept decoded, at half a dozen objects each; none of them is in a cycle
_tasks = 0


def freeze_loaded_modules() -> None:
    """Called at the start of a task; freezes in the first few tasks of a worker only."""
    freeze_what_stays(0)


def freeze_what_stays(kept: int) -> None:
    """The same, and also wherever as many as `kept` objects stay from task to task."""
    global _tasks  # noqa: PLW0603 - a worker process has one collector, and outlives its tasks
    gc.disable()  # the daemon collects between the tasks
    if _tasks < _TASKS_THAT_LOAD or kept >= _WORTH_FREEZING:
        _tasks += 1
        gc.freeze()
