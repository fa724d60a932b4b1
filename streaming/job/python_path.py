"""Where Spark's Python processes find PySpark and txnwatch."""

from __future__ import annotations

import contextlib
import os
import zipimport
from collections.abc import Iterator
from pathlib import Path

import txnwatch

# spark-submit may have brought txnwatch as a zip. The process that lists the source of a streaming query does not find
# the files of `--py-files` (Spark 4.3.0, seen with a standalone master). So the zip is in the search path of every
# Python process.


def search_path() -> dict[str, str]:
    """The environment of Spark's Python processes: the zip on the driver, and in the directory of an executor."""
    loader = getattr(txnwatch.__spec__, "loader", None)
    if not isinstance(loader, zipimport.zipimporter):
        return {}
    archive = Path(loader.archive).absolute()
    return {"PYTHONPATH": os.pathsep.join((str(archive), archive.name))}


# Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first into the search path of its Python processes. The zip has no
# compiled modules, so each process compiles all that it imports: 0.75 s of CPU for each of the six processes of a start
# (docs/decisions/0032). The installed PySpark is the same code, and is compiled. So the home of the JVM is a directory
# with links to all of the real home except `python`.

_HOME = "SPARK_HOME"
_WITHOUT = "python"


@contextlib.contextmanager
def installed_pyspark(real: Path, scratch: Path) -> Iterator[None]:
    """The JVM that starts in the block gives the installed PySpark to its Python processes; `real` is Spark's home.

    Only for a local master, whose processes have the Python of the driver. Nothing changes if `SPARK_HOME` is set,
    because then an operator has chosen a home, or if the real home has no zip.
    """
    if _HOME in os.environ or not (real / _WITHOUT / "lib" / "pyspark.zip").is_file():
        yield
        return
    home = scratch / "spark-home"
    home.mkdir()
    for entry in real.iterdir():
        if entry.name != _WITHOUT:
            (home / entry.name).symlink_to(entry)
    os.environ[_HOME] = str(home)
    try:
        yield
    finally:
        del os.environ[_HOME]
