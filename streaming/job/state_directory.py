"""The directory of a checkpoint in which this version keeps its state.

Each version keeps its state in `state-<hash>` inside the checkpoint. The hash is made of everything that decides
whether stored state can be read. So a start never reads the state of another version.

A version that finds no state of its own starts as a first start does: it builds its state from the logs, and reads data
from the last stable offsets.

Law: a checkpoint has one state. The states of other versions are removed before the query begins. So an earlier version
that is started again does not read a second time what a later one has read and reported.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields
from typing import Any, NamedTuple

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txnwatch.state.model.clocks import ClockBase
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.ports import Log
from txnwatch.state.model.serializer import VERSION_BYTES, version_of
from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.state.store.bucket_log import HEADS
from txnwatch.streaming.job.checkpoint import check_files, last_cluster, offset_in, reading
from txnwatch.streaming.job.failures import may_pass, root_cause, text_of
from txnwatch.streaming.job.operator import STATE_VARIABLES
from txnwatch.streaming.job.spark_conf import local_directory
from txnwatch.streaming.source.offsets import VERSION, NotBegun, Position, SourceOffset

REPLACES = "txnwatch-replaces"  # an empty file: this state has replaced that of another version
_NAME = re.compile(f"state-[0-9a-f]{{{VERSION_BYTES}}}")
_OF_SPARK = "offsets"  # directly in the checkpoint, it is that of another program, or of an early build
OFFSET_TYPES = (Position, NotBegun, ClockBase)


def state_name(access: CoordinatorAccess, state_partitions: int = 1) -> str:
    """The name of the directory, a hash.

    It is made of the types of the state and of the source's offset, of the names and columns of the state in Spark's
    state store, of the view of the coordinators, of the number of partitions of the state, and of the version of Spark.
    """
    offset = (VERSION, [(field.name, field.type) for field in fields(SourceOffset)], version_of(*OFFSET_TYPES))
    stored = (HEADS.version, STATE_VARIABLES, offset, str(access), state_partitions, pyspark.__version__)
    return f"state-{hashlib.sha256(repr(stored).encode()).hexdigest()[:VERSION_BYTES]}"


def check_local_states(checkpoint: str, name: str, cluster_id: str) -> None:
    """Checks a local checkpoint before Spark starts; `name` is the directory of this version.

    Raises:
        CheckpointError: it is of another cluster or of another program, or the state of this version is damaged.
    """
    root = local_directory(checkpoint)
    if root is None:
        return
    with reading(checkpoint):
        if (root / _OF_SPARK).exists():
            raise _no_directory_of_ours(checkpoint, last_cluster(checkpoint, root, is_ours=False))
        names = [path.name for path in root.iterdir() if _NAME.fullmatch(path.name)] if root.is_dir() else []
    check_files(checkpoint, root / name)
    for found_name in names:
        _check_same_cluster(
            checkpoint, last_cluster(checkpoint, root / found_name, is_ours=found_name == name), cluster_id
        )


def _no_directory_of_ours(checkpoint: str, cluster_in_it: str | None) -> CheckpointError:
    """The error about Spark's files directly in the checkpoint; only offsets of txnwatch have the name of a cluster."""
    if cluster_in_it:
        return CheckpointError(
            f"--checkpoint {checkpoint}: found the state of an early build of txnwatch, which this version does not "
            "read: give it a new directory, where it builds its state from the logs, and delete this one"
        )
    return CheckpointError(
        f"--checkpoint {checkpoint}: expected a directory of txnwatch's own, found the checkpoint of another program: "
        "give txnwatch a directory of its own"
    )


class StateDirectories:
    """The states in one checkpoint, on any file system that Spark can use.

    Args:
        name: the directory of this version.
        log: receives what begins, and what is not known.

    Raises:
        Py4JError, PySparkException: the file system cannot be used; another attempt may succeed.
    """

    def __init__(self, session: SparkSession, checkpoint: str, name: str, log: Log) -> None:
        self._session, self._root, self._name, self._log = session, checkpoint.rstrip("/"), name, log
        self._path, self._files = file_system_of(session, checkpoint)

    @property
    def own(self) -> str:
        """The directory of this version, which is the checkpoint of its query."""
        return f"{self._root}/{self._name}"

    def begin(self, cluster_id: str) -> bool:
        """Whether this state replaces that of another version; call it before the query starts.

        Raises:
            CheckpointError: the checkpoint is of another cluster than `cluster_id`, or of another program.
        """
        if self._files.exists(self._path(f"{self._root}/{_OF_SPARK}")):
            raise _no_directory_of_ours(self._root, self._cluster_of(""))
        others = self._names()
        for name in others:
            _check_same_cluster(self._root, self._cluster_of(name), cluster_id)
        mark = self._path(f"{self.own}/{REPLACES}")
        if others and not self._files.exists(self._path(self.own)):
            self._files.create(mark, True).close()
            self._log.warning(
                f"the checkpoint has no {self._name}, the state of this version, view of the coordinators and number "
                "of state partitions: the state is rebuilt from the logs, and data is read from the last stable offsets"
            )
        for name in others:
            self._remove(name)
        return bool(self._files.exists(mark))

    def _names(self) -> list[str]:
        root = self._path(self._root)
        statuses = self._files.listStatus(root) if self._files.exists(root) else []
        names = [str(status.getPath().getName()) for status in statuses]
        return sorted(name for name in names if _NAME.fullmatch(name) and name != self._name)

    def _cluster_of(self, name: str) -> str | None:
        """The cluster of another state; None if it has no committed micro-batch, or is damaged."""
        logs = _SparkLogs(self._session, f"{self._root}/{name}")
        try:
            batch = logs.last_committed()
            return str(logs.offset(batch).get("cluster_id", "")) if batch is not None else None
        except ValueError:
            return None
        except JVM_ERRORS as exc:
            if may_pass(_cause(exc), text_of(exc)):
                raise
            return None

    def _remove(self, name: str) -> None:
        try:
            self._files.delete(self._path(f"{self._root}/{name}"), True)
        except JVM_ERRORS as exc:
            self._log.warning(f"{name} in the checkpoint is no longer needed, and is not deleted: {_cause(exc)}")


def _cause(error: BaseException) -> str:
    return root_cause(text_of(error))


def _check_same_cluster(checkpoint: str, written_for: str | None, cluster_id: str) -> None:
    """Checks that the checkpoint is of the cluster that the brokers answer for.

    Raises:
        CheckpointError: it is of another one.
    """
    if written_for not in {None, "", cluster_id}:
        raise CheckpointError(
            f"--checkpoint {checkpoint} was written for cluster {written_for}, but the brokers answer for cluster "
            f"{cluster_id}: check --bootstrap-server, or give this cluster its own checkpoint directory"
        )


# What Spark has written about the micro-batches of a checkpoint, on any file system: offsets and commits.
#
# The file system is used as Spark itself would use it.

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


class _SparkLogs:
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
