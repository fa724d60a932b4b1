"""Lets the JVM forget a frame that is no longer used.

Py4J keeps an object of the JVM until Python collects its proxy. A proxy with a called method is a reference cycle, and
a full collection of a driver with many long-lived objects is rare. Until then the JVM keeps the plan of each frame and
the broadcasts of its tasks, about 150 KB a micro-batch (docs/decisions/0023).
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame


def release(frame: DataFrame) -> None:
    """Removes the JVM's reference to the frame, which cannot be used afterwards."""
    gateway: Any = frame.sparkSession.sparkContext._gateway  # noqa: SLF001 - Spark has no public API for it
    gateway.detach(frame._jdf)  # noqa: SLF001 - as above
