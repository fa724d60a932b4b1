"""Where Spark's processes find classes, PySpark and txnwatch."""

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


# The home of the JVM of a local master is a directory with links to the real home, without two things that make a start
# slow (docs/decisions/0032).
#
# Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first into the search path of its Python processes. The zip has no
# compiled modules, so each process compiles all that it imports: 0.75 s of CPU for each of the six processes of a
# start. The installed PySpark is the same code, and is compiled.
#
# A session loads the extension that the library for machine learning brings, and with it Scala's reflection.

_HOME = "SPARK_HOME"
_WITHOUT = "python"
_JARS = "jars"
_WITHOUT_JARS = "spark-mllib_*.jar"


@contextlib.contextmanager
def quick_home(real: Path, scratch: Path) -> Iterator[Path | None]:
    """The JVM that starts in the block uses this home; `real` is that of the installed PySpark.

    Only for a local master, whose processes have the Python of the driver. None, and nothing changes, if `SPARK_HOME`
    is set, because then an operator has chosen a home, or if the real home has no zip.
    """
    if _HOME in os.environ or not (real / _WITHOUT / "lib" / "pyspark.zip").is_file():
        yield None
        return
    home = scratch / "spark-home"
    (home / _JARS).mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name not in {_WITHOUT, _JARS}:
            (home / entry.name).symlink_to(entry)
    for jar in (real / _JARS).iterdir():
        if not jar.match(_WITHOUT_JARS):
            (home / _JARS / jar.name).symlink_to(jar)
    os.environ[_HOME] = str(home)
    try:
        yield home
    finally:
        del os.environ[_HOME]


# The JVM looks for each class in one jar after the other, in the order of the directory. There are 279 jars and 13,000
# classes, so the jars with most of the classes come first.

_FIRST = (
    *("spark-catalyst_", "spark-core_", "spark-sql_", "scala-library-", "spark-sql-api_", "log4j-core-"),
    *("jackson-databind-", "hadoop-client-api-", "janino-", "arrow-vector-", "spark-config_", "spark-network-common_"),
    *("hadoop-client-runtime-", "ivy-", "netty-common-", "antlr4-runtime-", "jackson-module-scala_", "jackson-core-"),
    *("netty-transport-4", "spark-common-utils_", "log4j-api-", "commons-compiler-", "netty-buffer-", "py4j-"),
)


def classes_first(home: Path) -> dict[str, str]:
    """The setting of Spark that puts these jars of a home first, behind those that an operator has put there."""
    found = (path for prefix in _FIRST for path in sorted((home / _JARS).glob(f"{prefix}*.jar")))
    return {"spark.driver.defaultExtraClassPath": os.pathsep.join(map(str, found))}
