"""What Spark has written about the micro-batches of a checkpoint, on any file system: offsets and commits."""

from __future__ import annotations

from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txnwatch.streaming.job.checkpoint import offset_in

# The file system of a directory, as Spark itself would use it.

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


class SparkLogs:
    """The logs in one directory.

    Raises:
        Py4JError, PySparkException: the file system cannot be reached, a file is missing, or its checksum is wrong.
    """

    def __init__(self, session: SparkSession, directory: str) -> None:
        self._root = directory.rstrip("/")
        self._path, self._files = file_system_of(session, directory)

    def last_committed(self) -> int | None:
        """The number of the last micro-batch that was committed; None if there is none."""
        path = self._path(f"{self._root}/commits")
        if not self._files.exists(path):
            return None
        names = [str(status.getPath().getName()) for status in self._files.listStatus(path)]
        return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)

    def offset(self, batch: int) -> dict[str, Any]:
        """The offset of the source at the end of a micro-batch, as JSON.

        Raises:
            ValueError: the file has no such offset.
        """
        stream = self._files.open(self._path(f"{self._root}/offsets/{batch}"))
        try:
            text = bytes(stream.readAllBytes()).decode(errors="replace")
        finally:
            stream.close()
        return offset_in(text)
