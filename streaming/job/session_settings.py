"""The settings of a session of Spark, for a latency of milliseconds; each has its reason in docs/decisions/0002."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from txnwatch.streaming.job.checkpoint import local_directory
from txnwatch.streaming.job.spark_conf import JAVA_OPTIONS, with_conf

_NAME: Final = "txnwatch"
_RETAINED: Final = "20"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL_FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_SOCKET_NAME_BYTES = len("/.00000000-0000-0000-0000-000000000000.sock")
_LONGEST_SOCKET_BYTES = 103  # macOS; Linux has 107
_JAVA_OPTIONS: Final = (
    # Spark parses a worker's traceback with a recursive regular expression. With a long traceback the default stack
    # overflows, which ends the query's thread without ending the query.
    "-Xss16m",
    # The JVM plans small batches and moves few bytes. The second compiler and the parallel collectors used most of its
    # CPU in the first minutes, without a benefit.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # The default first heap is 1/64 of the machine's memory. The JVM fills and keeps all of it before a collection.
    "-Xms64m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is started with.

    Attributes:
        checkpoint: directory or URI. A local one uses a faster file manager. It does not stop a second driver from
            writing to the same checkpoint, so the caller must lock it.
        master: empty if Spark's own configuration has it.
        scratch: the directory for temporary files, unless `conf` has another.
        state_partitions: fixed by the checkpoint.
        is_checkpoint_shared: whether all hosts reach the checkpoint, although it is a directory.
        conf: settings of the operator.
    """

    checkpoint: str
    master: str
    scratch: Path
    state_partitions: int = 1
    is_checkpoint_shared: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, str]:
        """The settings by key."""
        where = {"spark.master": self.master} if self.master else {}
        return {"spark.app.name": _NAME, **where, **with_conf(self._own(), self.conf)}

    def _own(self) -> dict[str, str]:
        # Spark's own directories (spark.local.dir) are below that of the JVM unless an operator sets them.
        java_options = (*_JAVA_OPTIONS, f'-Djava.io.tmpdir="{self.scratch}"')
        settings = {
            "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.python.unix.domain.socket.enabled": str(_has_room_for_sockets(self.scratch)).lower(),
            # Spark starts a daemon for each set of environment variables. This setting is a variable of the operator's
            # workers only. Without it the source and the operator share the workers: 150 MB less (docs/decisions/0023).
            "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
            "spark.sql.shuffle.partitions": str(self.state_partitions),
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            # Spark keeps the last 1,000 of each for its UI, also without a UI: 60 MB after ten minutes.
            "spark.ui.retainedJobs": _RETAINED,
            "spark.ui.retainedStages": _RETAINED,
            "spark.ui.retainedTasks": _RETAINED,
            "spark.sql.ui.retainedExecutions": _RETAINED,
            JAVA_OPTIONS: " ".join(java_options),
            "spark.ui.showConsoleProgress": "false",
        }
        if local_directory(self.checkpoint) is not None:
            settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILES
        return settings


def _has_room_for_sockets(directory: Path) -> bool:
    """Whether the paths of Spark's Unix sockets in it are short enough for every operating system."""
    return len(os.fsencode(directory)) + _SOCKET_NAME_BYTES <= _LONGEST_SOCKET_BYTES
