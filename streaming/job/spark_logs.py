"""What Spark has written about the micro-batches of a checkpoint, on any file system: offsets and commits."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from txnwatch.streaming.job.checkpoint import offset_in
from txnwatch.streaming.job.hadoop_file_system import JVM_ERRORS, file_system_of


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
        return self._last("commits")

    def last_planned(self) -> int | None:
        """The number of the last micro-batch that was planned; None if there is none."""
        return self._last("offsets")

    def _last(self, log: str) -> int | None:
        path = self._path(f"{self._root}/{log}")
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

    def cluster(self) -> str | None:
        """The cluster of the last planned offset; None if there is no offset that can be read."""
        try:
            batch = self.last_planned()
            return str(self.offset(batch).get("cluster_id", "")) if batch is not None else None
        except (*JVM_ERRORS, ValueError):
            return None
