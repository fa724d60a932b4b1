"""Moves a checkpoint of another version aside, so that a new one begins in the same directory.

The state is rebuilt from the logs: the new query reads `__transaction_state` from its beginning, and data from where
the moved checkpoint ends. The moved checkpoint is kept until the next move. All of it goes
through Spark's own file system, so a URI is moved like a local directory.

A checkpoint without a committed micro-batch has nothing to keep: it is deleted, and an earlier one stays.

Law: a move can end at any moment, and the next start completes it before its query begins. The directory of the move is
created first and gets its final name last. `commits` is moved first: without commits, a checkpoint is valid with any of
its other parts missing (checkpoint.py). Files of txnwatch itself are no part of a checkpoint and stay where they are.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.job.checkpoint import check_same_cluster
from txnwatch.streaming.job.failures import may_pass, root_cause, text_of
from txnwatch.streaming.job.spark_logs import JVM_ERRORS, SparkLogs, file_system_of
from txnwatch.streaming.source.driver_files import FormerPosition, positions_in

PREVIOUS = "txnwatch-previous"
_MOVING = "txnwatch-previous.moving"
_PARTS = ("commits", "offsets", "state", "sources", "metadata")


def set_aside(session: SparkSession, checkpoint: str, cluster_id: str) -> str:
    """Moves Spark's part of the checkpoint into a directory inside it; returns that directory.

    No query may use the checkpoint.

    Raises:
        CheckpointError: it is of another cluster than `cluster_id`, or the file system refuses the move; the next start
            continues it.
    """
    files, logs = _Directory(session, checkpoint), SparkLogs(session, checkpoint)
    is_begun = files.has(_MOVING)
    if not is_begun:
        check_same_cluster(checkpoint, logs.cluster(), cluster_id)
    if is_begun or files.attempt(logs.last_committed) is not None or not files.has(PREVIOUS):
        files.make(_MOVING)
        _move_all(files)
    else:
        for part in reversed(_PARTS):
            files.remove(part)
    return f"{checkpoint.rstrip('/')}/{PREVIOUS}"


def complete_move(session: SparkSession, checkpoint: str) -> bool:
    """Completes a move that was interrupted. Returns whether the checkpoint replaces an earlier one.

    Raises:
        CheckpointError: as `set_aside`.
        Py4JError: the file system cannot be used at all, so nothing is known about a move.
    """
    files = _Directory(session, checkpoint)
    if files.shows(_MOVING):
        _move_all(files)
    return files.shows(PREVIOUS)


def _move_all(files: _Directory) -> None:
    for part in _PARTS:
        files.move(part, f"{_MOVING}/{part}")
    files.remove(PREVIOUS)
    files.move(_MOVING, PREVIOUS)


class _Directory:
    """A directory of Spark's file system; names are relative to it."""

    def __init__(self, session: SparkSession, root: str) -> None:
        self._root = root
        self._path, self._files = file_system_of(session, root)

    def shows(self, name: str) -> bool:
        """Whether it exists; an error of the file system is raised."""
        return bool(self._files.exists(self._at(name)))

    def has(self, name: str) -> bool:
        return bool(self.attempt(lambda: self.shows(name)))

    def make(self, name: str) -> None:
        self.attempt(lambda: self._files.mkdirs(self._at(name)))

    def remove(self, name: str) -> None:
        self.attempt(lambda: self._files.delete(self._at(name), True))

    def move(self, name: str, to: str) -> None:
        """Moves it, if it is there. On an object store an interrupted move leaves parts of it in both places."""
        if not self.has(name):
            return
        if self.has(to):
            self.remove(name)
        elif not self.attempt(lambda: self._files.rename(self._at(name), self._at(to))):
            raise self._error(f"{name} cannot be moved")

    def _at(self, name: str) -> Any:  # noqa: ANN401 - a Path of the JVM
        return self._path(f"{self._root}/{name}")

    def attempt(self, call: Any) -> Any:  # noqa: ANN401 - a call of the JVM
        try:
            return call()
        except JVM_ERRORS as exc:
            raise self._error(root_cause(text_of(exc))) from exc

    def _error(self, why: str) -> CheckpointError:
        return CheckpointError(f"--checkpoint {self._root} is of another version and has to be moved aside: {why}")


# Where the checkpoint ends that the current one replaces: the new query continues reading there.
#
# Only the positions are used, which have one meaning in every version. They are those of the last committed
# micro-batch: what a later one has read may not have reached the events topic.


class FormerPositionsError(CheckpointError):
    """The checkpoint that was replaced has no positions that can be read."""


def former_positions(session: SparkSession, checkpoint: str) -> dict[TopicPartition, FormerPosition]:
    """The positions of the checkpoint that was replaced.

    Raises:
        FormerPositionsError: it has none, or a file of it is missing or damaged.
        Py4JError, PySparkException: another attempt may succeed.
    """
    directory = f"{checkpoint.rstrip('/')}/{PREVIOUS}"
    try:
        logs = SparkLogs(session, directory)
        batch = logs.last_committed()
        if batch is None:
            raise FormerPositionsError("no micro-batch of it was committed")
        return positions_in(logs.offset(batch))
    except ValueError as exc:
        raise FormerPositionsError(f"offsets/{batch}: {exc}") from exc
    except JVM_ERRORS as exc:
        text = text_of(exc)
        cause = root_cause(text)
        if may_pass(cause, text):
            raise
        raise FormerPositionsError(cause) from exc
