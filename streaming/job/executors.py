"""The cores that run tasks. Executors of a cluster register some seconds after the session has started."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession

from txnwatch.streaming.job.masters import is_local

_PATIENCE_S, _SETTLED_S, _POLL_S = 20.0, 2.0, 0.2


def cores_of(session: SparkSession) -> int:
    """The number of cores of the driver (local) or of the executors; waits until no further executor registers."""
    context: Any = session.sparkContext
    if is_local(context.master):
        return int(context.defaultParallelism)
    jvm_context: Any = context._jsc.sc()  # noqa: SLF001 - Spark has no public API for it
    begin = changed = time.monotonic()
    known = 0
    while (now := time.monotonic()) - begin < _PATIENCE_S and (known == 0 or now - changed < _SETTLED_S):
        executors = jvm_context.getExecutorMemoryStatus().size() - 1  # without the driver
        if executors != known:
            known, changed = executors, now
        time.sleep(_POLL_S)
    return int(context.defaultParallelism)
