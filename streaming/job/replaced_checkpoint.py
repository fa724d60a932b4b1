"""The checkpoint that the current one replaces (set_aside.py): the new query continues reading where it ends.

Only the positions are used, which have one meaning in every version. They are those of the last committed micro-batch:
what a later one has read may not have reached the events topic.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from txnwatch.state.model.errors import CheckpointError, QueryError
from txnwatch.state.text.outside_json import read_json
from txnwatch.streaming.job.hadoop_file_system import file_system_of
from txnwatch.streaming.job.set_aside import PREVIOUS, complete_move
from txnwatch.streaming.source.former_positions import positions_in, write_former_positions

_OFFSET_LINE = 2  # of Spark's file: its version, its metadata, and the offset of the only source


def replaces_another(session: SparkSession, checkpoint: str, positions_file: Path) -> bool:
    """Completes a move that was interrupted, and writes where the replaced checkpoint ends.

    The file stays as it is if the replaced checkpoint has no committed micro-batch: it then continued an earlier one.
    Returns whether the checkpoint replaces another one.

    Raises:
        CheckpointError: the move cannot be completed.
        FormerPositionsError: the positions cannot be read from the replaced checkpoint; nothing was written.
        QueryError: the file cannot be written.
        Py4JError: the file system cannot be used.
    """
    if not complete_move(session, checkpoint):
        return False
    text = _last_committed(session, f"{checkpoint.rstrip('/')}/{PREVIOUS}")
    if text is None:
        return True
    try:
        positions = positions_in(read_json(text.splitlines()[_OFFSET_LINE]))
    except (IndexError, ValueError) as exc:
        raise FormerPositionsError(str(exc)) from exc
    try:
        write_former_positions(positions_file, positions)
    except OSError as exc:
        raise QueryError(f"{positions_file} cannot be written: {exc.strerror}") from exc
    return True


class FormerPositionsError(CheckpointError):
    """A checkpoint that was replaced has no positions that can be read."""


def _last_committed(session: SparkSession, directory: str) -> str | None:
    """Spark's file of the offsets of the last committed micro-batch; None if none was committed."""
    path, files = file_system_of(session, directory)
    commits = path(f"{directory}/commits")
    if not files.exists(commits):
        return None
    names = [str(status.getPath().getName()) for status in files.listStatus(commits)]
    batches = [int(name) for name in names if name.isascii() and name.isdigit()]
    if not batches:
        return None
    stream = files.open(path(f"{directory}/offsets/{max(batches)}"))
    try:
        return bytes(stream.readAllBytes()).decode(errors="replace")
    finally:
        stream.close()
