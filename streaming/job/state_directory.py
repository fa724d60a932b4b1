"""The directory of a checkpoint in which this version keeps its state, and where the states of other versions end.

Each version keeps its state in `state-<hash>` inside the checkpoint. The hash is made of everything that decides
whether stored state can be read. So a start never reads the state of another version, and nothing is moved: an earlier
version that is started again finds its own state.

A new state is built from the logs: the query reads `__transaction_state` from its beginning, and data from where the
other states end. A version that finds its own state again, after a rollback, reads from its own last micro-batch. In
both cases the findings in what another version has read were reported by that version. Only the positions of another
state are used, which have one meaning in every version. They are those of its last committed micro-batch: what a later
one has read may not have reached the events topic. Each version continues where the others end, so the highest position
of a partition counts.

Law: the positions are written into the own directory (`txnwatch-continues.json`) before its query begins. So they stay
known when the other directories are removed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txnwatch.state.model.clocks import ClockBase
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.ports import Log
from txnwatch.state.model.serializer import VERSION_BYTES, version_of
from txnwatch.state.model.values import CoordinatorAccess, TopicPartition
from txnwatch.state.store.bucket_log import HEADS
from txnwatch.streaming.job.checkpoint import check_files, last_cluster, local_directory, offset_in, reading
from txnwatch.streaming.job.failures import may_pass, root_cause, text_of
from txnwatch.streaming.job.operator import STATE_VARIABLES
from txnwatch.streaming.source.driver_file import FormerPosition, positions_from, positions_in, positions_text
from txnwatch.streaming.source.offsets import VERSION, NotBegun, Position, SourceOffset

CONTINUES = "txnwatch-continues.json"
_NAME = re.compile(f"state-[0-9a-f]{{{VERSION_BYTES}}}")
_OF_SPARK = "offsets"  # directly in the checkpoint, it is that of another program
_LISTED = "coordinator_listed_ms"
OFFSET_TYPES = (Position, NotBegun, ClockBase)
_T = TypeVar("_T")


def state_name(access: CoordinatorAccess) -> str:
    """The name of the directory, a hash.

    It is made of the types of the state and of the source's offset, of the names and columns of the state in Spark's
    state store, of the view of the coordinators, and of the version of Spark.
    """
    offset = (VERSION, [(field.name, field.type) for field in fields(SourceOffset)], version_of(*OFFSET_TYPES))
    stored = (HEADS.version, STATE_VARIABLES, offset, str(access), pyspark.__version__)
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
            raise _of_another_program(checkpoint)
        names = [path.name for path in root.iterdir() if _NAME.fullmatch(path.name)] if root.is_dir() else []
    check_files(checkpoint, root / name)
    for one in names:
        _check_same_cluster(checkpoint, last_cluster(checkpoint, root / one, is_ours=one == name), cluster_id)


def _of_another_program(checkpoint: str) -> CheckpointError:
    return CheckpointError(
        f"--checkpoint {checkpoint}: expected a directory of txnwatch's own, found the checkpoint of another program: "
        "give txnwatch a directory of its own"
    )


class Former(NamedTuple):
    """What other versions have read.

    Attributes:
        positions: where the other states end; None if that is not known.
    """

    positions: Mapping[TopicPartition, FormerPosition] | None


@dataclass(frozen=True, slots=True)
class _Ended:
    """Another state, and what is used of the offset of its last committed micro-batch."""

    name: str
    listed_ms: int
    positions: Mapping[TopicPartition, FormerPosition]


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

    def begin(self, cluster_id: str) -> Former | None:
        """What other versions have read; None if there was none.

        Call it before the query starts. It removes the other states, except the one that was used last.

        Raises:
            CheckpointError: the checkpoint is of another cluster than `cluster_id`, or of another program.
        """
        if self._files.exists(self._path(f"{self._root}/{_OF_SPARK}")):
            raise _of_another_program(self._root)
        others, unknown = self._others(cluster_id)
        stored = self._continued()
        if _SparkLogs(self._session, self.own).last_committed() is None:
            self._report(others, unknown, is_first=stored is None)
        else:
            unknown = {}
        former = stored
        if others:
            known = stored.positions if stored is not None else None
            former = Former(_highest([known or {}, *(one.positions for one in others)]))
        elif unknown and stored is None:
            former = Former(None)
        if former is not None and former != stored:
            self._write(former)
        for one in others[:-1]:
            self._remove(one.name)
        return former

    def _others(self, cluster_id: str) -> tuple[list[_Ended], dict[str, str]]:
        """The other states with a committed micro-batch, the last used one last; and why others cannot be read."""
        found: list[_Ended] = []
        unknown: dict[str, str] = {}
        for name in self._names():
            try:
                ended = self._ended(name, cluster_id)
            except _UnknownEndError as exc:
                unknown[name] = str(exc)
                continue
            if ended is not None:
                found.append(ended)
        return sorted(found, key=lambda one: one.listed_ms), unknown

    def _names(self) -> list[str]:
        root = self._path(self._root)
        statuses = self._files.listStatus(root) if self._files.exists(root) else []
        names = [str(status.getPath().getName()) for status in statuses]
        return sorted(name for name in names if _NAME.fullmatch(name) and name != self._name)

    def _ended(self, name: str, cluster_id: str) -> _Ended | None:
        """Another state; None if it has no committed micro-batch, so that nothing continues there."""
        logs = _SparkLogs(self._session, f"{self._root}/{name}")
        batch = _known(logs.last_committed)
        if batch is None:
            return None
        raw = _known(lambda: logs.offset(batch), f"offsets/{batch}: ")
        _check_same_cluster(self._root, str(raw.get("cluster_id", "")), cluster_id)
        listed_ms = raw.get(_LISTED)
        if type(listed_ms) is not int:
            raise _UnknownEndError(f"offsets/{batch}: expected {_LISTED}, found {listed_ms!r}")
        return _Ended(name, listed_ms, _known(lambda: positions_in(raw), f"offsets/{batch}: "))

    def _report(self, others: list[_Ended], unknown: Mapping[str, str], *, is_first: bool) -> None:
        for name, why in unknown.items():
            self._log.warning(
                f"where {name} in the checkpoint ends is not known: {why}; data that it has read may be read again, "
                "and a stray write that was closed while no watcher ran may not be reported"
            )
        if is_first and (others or unknown):
            where = f"where {others[-1].name} ends" if others else "at the last stable offsets"
            self._log.warning(
                f"the checkpoint has no {self._name}, the state of this version and of this view of the coordinators: "
                f"the state is rebuilt from the logs, and reading continues {where}"
            )

    def _write(self, former: Former) -> None:
        out = self._files.create(self._path(f"{self.own}/{CONTINUES}"), True)
        try:
            out.write(bytearray(positions_text(former.positions)))
        finally:
            out.close()

    def _continued(self) -> Former | None:
        path = self._path(f"{self.own}/{CONTINUES}")
        if not self._files.exists(path):
            return None
        try:
            stream = self._files.open(path)
            try:
                return Former(positions_from(bytes(stream.readAllBytes())))
            finally:
                stream.close()
        except JVM_ERRORS as exc:
            if may_pass(root_cause(text_of(exc)), text_of(exc)):
                raise
            return Former(None)

    def _remove(self, name: str) -> None:
        try:
            self._files.delete(self._path(f"{self._root}/{name}"), True)
        except JVM_ERRORS as exc:
            self._log.warning(f"{name} in the checkpoint is no longer needed, and is not deleted: {_cause(exc)}")


class _UnknownEndError(CheckpointError):
    """A state has no positions that can be read."""


def _known(read: Callable[[], _T], where: str = "") -> _T:
    try:
        return read()
    except ValueError as exc:
        raise _UnknownEndError(f"{where}{exc}") from exc
    except JVM_ERRORS as exc:
        if may_pass(_cause(exc), text_of(exc)):
            raise
        raise _UnknownEndError(_cause(exc)) from exc


def _cause(error: BaseException) -> str:
    return root_cause(text_of(error))


def _highest(states: Iterable[Mapping[TopicPartition, FormerPosition]]) -> dict[TopicPartition, FormerPosition]:
    """The highest position of each partition. If a topic was re-created, that of its later id counts."""
    found: dict[TopicPartition, FormerPosition] = {}
    for positions in states:  # the last used one last
        for partition, at in positions.items():
            known = found.get(partition)
            if known is None or known.topic_id != at.topic_id or _read_to(at) > _read_to(known):
                found[partition] = at
    return found


def _read_to(at: FormerPosition) -> int:
    return at.offset if at.offset is not None else -1


def _check_same_cluster(checkpoint: str, known: str | None, cluster_id: str) -> None:
    """Checks that the checkpoint is of the cluster that the brokers answer for.

    Raises:
        CheckpointError: it is of another one.
    """
    if known not in {None, "", cluster_id}:
        raise CheckpointError(
            f"--checkpoint {checkpoint} was written for cluster {known}, but the brokers answer for cluster "
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
