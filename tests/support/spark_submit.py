"""A watch that `spark-submit` starts: the JVM is the parent of the driver."""

from __future__ import annotations

from pathlib import Path

import psutil
import pyspark

from support.spark_cluster import arguments
from support.watch import RunningWatch

_SCRIPT = Path(__file__).parents[2] / "deploy" / "spark" / "txnwatch_run.py"


def submit(watch: RunningWatch, python: str | Path, *options: str) -> RunningWatch:
    """The watch with the command of spark-submit; `options` are those of spark-submit."""
    flags, home = watch.command[watch.command.index("run") + 1 :], Path(pyspark.__file__).parent
    environment = ("env", f"PYSPARK_PYTHON={python}", f"SPARK_HOME={home}")
    watch.command = [*environment, str(home / "bin" / "spark-submit"), *options, str(_SCRIPT), *flags]
    return watch


def driver_of(watch: RunningWatch) -> psutil.Process:
    """The Python process of the driver."""
    (found,) = [
        child for child in psutil.Process(watch.pid).children(recursive=True) if _SCRIPT.name in arguments(child)
    ]
    return found
