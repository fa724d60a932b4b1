"""The file system of a directory, as Spark itself would use it."""

from __future__ import annotations

from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

# PySpark replaces some exceptions of the JVM, such as that of an unknown host, with its own.
JVM_ERRORS = (Py4JError, PySparkException)


class HadoopFileSystem(NamedTuple):
    """Objects of the JVM.

    Attributes:
        path: the class of paths, which takes a text.
        files: Hadoop's client of the file system; its calls raise Py4J errors.
    """

    path: Any
    files: Any


def file_system_of(session: SparkSession, directory: str) -> HadoopFileSystem:
    """The file system that a directory is on, which may also be a local one.

    Raises:
        Py4JError, PySparkException: its settings or its address are invalid.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - Spark has no public API for it
    state: Any = session._jsparkSession.sessionState()  # noqa: SLF001 - as above
    path = jvm.org.apache.hadoop.fs.Path
    return HadoopFileSystem(path, path(directory).getFileSystem(state.newHadoopConf()))
