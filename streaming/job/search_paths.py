"""Where Spark's processes find classes, PySpark and txnwatch."""

from __future__ import annotations

import os
import sys
import zipimport
from collections.abc import Mapping
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


# The home of the JVM of a local master is a directory with links to the real home, without three things that make a
# start slow (docs/decisions/0032).
#
# Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first into the search path of its Python processes. The zip has no
# compiled modules, so each process compiles all that it imports: 0.75 s of CPU for each of the six processes of a
# start. The installed PySpark is the same code, and is compiled.
#
# A session loads the extension that the library for machine learning brings, and with it Scala's reflection.
#
# The JVM looks for each class in one jar after the other, in the order of the directory. So the class path names the
# jars, those with the most classes first, and the directory has only the jar that starts Spark. The order never
# changes, which an archive of the classes needs (prepared_home.py).

_HOME, _CONF_HOME, _PYTHON = "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON"
_WITHOUT = "python"
_CONF = "conf"
_JARS = "jars"
_STARTER = "spark-launcher_*.jar"
_WITHOUT_JARS = "spark-mllib_*.jar"
_FIRST = (
    *("spark-catalyst_", "spark-core_", "spark-sql_", "scala-library-", "spark-sql-api_", "log4j-core-"),
    *("jackson-databind-", "hadoop-client-api-", "janino-", "arrow-vector-", "spark-config_", "spark-network-common_"),
    *("hadoop-client-runtime-", "ivy-", "netty-common-", "antlr4-runtime-", "jackson-module-scala_", "jackson-core-"),
    *("netty-transport-4", "spark-common-utils_", "log4j-api-", "commons-compiler-", "netty-buffer-", "py4j-"),
)


def why_not_quick(real: Path) -> str | None:
    """Why the JVM must not get a home of ours instead of `real`, that of the installed PySpark; None if it may.

    If `SPARK_HOME` or `PYSPARK_PYTHON` name another home or another Python, an operator has chosen it.
    """
    chosen, python = os.environ.get(_HOME), os.environ.get(_PYTHON, sys.executable)
    if chosen is not None and Path(chosen).resolve() != real.resolve():
        return f"{_HOME} is {chosen}, and the installed PySpark is {real}"
    if not _is_this(python):
        return f"{_PYTHON} is {python}, and this Python is {sys.executable}"
    if not (real / _WITHOUT / "lib" / "pyspark.zip").is_file():
        return f"{real} is no PySpark that pip has installed: it has no python/lib/pyspark.zip"
    return None


def _is_this(python: str) -> bool:
    """Whether the program is this Python; an environment has it under several names."""
    other, this = Path(python), Path(sys.executable)
    return other.parent.resolve() == this.parent.resolve() and other.resolve() == this.resolve()


def make_home(real: Path, home: Path) -> None:
    """Makes the directory `home` with links to the real one.

    Raises:
        OSError: the directory cannot be made, or exists.
    """
    (home / _JARS).mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name not in {_WITHOUT, _JARS, _CONF}:
            (home / entry.name).symlink_to(entry)
    for jar in (real / _JARS).glob(_STARTER):
        (home / _JARS / jar.name).symlink_to(jar)


def variables_of_home(home: Path, real: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a JVM that uses this home, and the configuration of the real one, if it ever gets any."""
    return {_HOME: str(home), _CONF_HOME: environ.get(_CONF_HOME, str(real / _CONF))}


def jars_of(real: Path) -> list[Path]:
    """The jars of a session, in the order in which the JVM looks for a class."""
    jars = (jar for jar in (real / _JARS).glob("*.jar") if not jar.match(_WITHOUT_JARS))
    return sorted(jars, key=lambda jar: (_rank(jar), jar))


def _rank(jar: Path) -> int:
    return next((place for place, prefix in enumerate(_FIRST) if jar.name.startswith(prefix)), len(_FIRST))


def class_path(real: Path) -> dict[str, str]:
    """The setting of Spark that names all jars, behind those that an operator has put there."""
    return {"spark.driver.defaultExtraClassPath": os.pathsep.join(map(str, jars_of(real)))}
