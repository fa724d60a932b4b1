"""The checkpoint directory without Spark: who has it, how far it is, and the files of txnwatch beside it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.values import DurationMs, Offset, TopicPartition
from txnwatch.state.text import read_json
from txnwatch.streaming.job.scratch import OwnDirectory
from txnwatch.streaming.job.spark_conf import local_directory
from txnwatch.streaming.source.offsets import SourceOffset, is_begun

# Reads and locks a checkpoint without Spark: its last offset, and the process that uses it now.

_LOCK = ".txnwatch-lock"
_HOLDER = ".txnwatch-holder"  # a file of its own, because taking the lock empties the lock's file
_OFFSET_LINE = 2  # the lines before it have the version of Spark's log, and settings
_NO_OFFSET = "expected an offset as JSON in the third line"
_INCOMPLETE = "restore the whole checkpoint from a copy, or start with a new --checkpoint directory"


def absolute(checkpoint: str) -> str:
    """The same checkpoint, whatever the current directory is."""
    directory = local_directory(checkpoint)
    return str(directory.absolute()) if directory is not None else checkpoint


def last_offset(directory: Path) -> SourceOffset | None:
    """The last planned offset in the directory of this version inside a local checkpoint; None for a new one.

    Raises:
        CheckpointError: the directory has an offset that this version of txnwatch did not write.
    """
    latest = _newest(directory / "offsets")
    if latest is None:
        return None
    try:
        return SourceOffset.from_json(offset_in(latest.read_text()))
    except (IndexError, ValueError, KeyError, TypeError, AttributeError) as exc:
        raise CheckpointError(
            f"--checkpoint {directory.parent}: expected txnwatch's offsets in {latest}, found something else: it is "
            "another program's checkpoint, or damaged; give txnwatch a directory of its own"
        ) from exc


def last_cluster(checkpoint: str, directory: Path, *, is_ours: bool) -> str | None:
    """The cluster of the last planned offset in a directory of the checkpoint; None for a new one.

    `is_ours`: this version has written the directory. Another one may have offsets that cannot be read: None.

    Raises:
        CheckpointError: the offset is not that of this version, or a file cannot be read.
    """
    with reading(checkpoint):
        if is_ours:
            offset = last_offset(directory)
            return offset.cluster_id if offset is not None else None
        latest = _newest(directory / "offsets")
        with contextlib.suppress(ValueError):
            return str(offset_in(latest.read_text()).get("cluster_id", "")) if latest is not None else None
        return None


@contextmanager
def reading(checkpoint: str) -> Iterator[None]:
    """Reports a file of a local checkpoint that cannot be read.

    Raises:
        CheckpointError: an OSError has left the block.
    """
    try:
        yield
    except OSError as exc:
        raise CheckpointError(
            f"--checkpoint {checkpoint}: {exc.filename} cannot be read: {exc.strerror}; the user of txnwatch must own "
            "the directory"
        ) from exc


def offset_in(text: str) -> dict[str, Any]:
    """The offset of the source, as JSON, in the text of a file of Spark's log of offsets.

    Raises:
        ValueError: the text has no such offset.
    """
    try:
        offset = read_json(text.splitlines()[_OFFSET_LINE])
    except (IndexError, ValueError) as exc:
        raise ValueError(_NO_OFFSET) from exc
    if not isinstance(offset, dict):
        raise ValueError(_NO_OFFSET)  # noqa: TRY004 - of a file, not of a caller
    return offset


def check_files(checkpoint: str, directory: Path) -> None:
    """Checks what Spark wrote into a directory of a local checkpoint: nothing is missing, the newest files are valid.

    Raises:
        CheckpointError: a file is damaged or cannot be read, or a part of the checkpoint is missing.
    """
    with reading(checkpoint):
        commit = _newest(directory / "commits")
        for name in ("metadata", "offsets", "state"):
            if commit is not None and not (directory / name).exists():
                raise CheckpointError(
                    f"--checkpoint {checkpoint}: expected {directory / name}, found none: {_INCOMPLETE}"
                )
        planned = _newest(directory / "offsets")
        if commit is not None and (planned is None or int(planned.name) < int(commit.name)):
            raise CheckpointError(
                f"--checkpoint {checkpoint}: expected {directory / 'offsets' / commit.name}, found none: {_INCOMPLETE}"
            )
        for file, line in ((directory / "metadata", 0), (commit, 1)):
            if file is not None and file.exists():
                _check_json(checkpoint, file, line)


def _newest(directory: Path) -> Path | None:
    """The file of the highest batch."""
    files = [file for file in directory.iterdir() if file.name.isdigit()] if directory.is_dir() else []
    return max(files, key=lambda file: int(file.name), default=None)


def _check_json(checkpoint: str, file: Path, line: int) -> None:
    try:
        read_json(file.read_text().splitlines()[line])
    except (IndexError, ValueError) as exc:
        raise CheckpointError(f"--checkpoint {checkpoint}: {file} is damaged: {_INCOMPLETE}") from exc


@contextmanager
def locked(checkpoint: str) -> Iterator[None]:
    """Locks a local checkpoint for this process: two drivers on one would overwrite each other's state.

    Raises:
        CheckpointError: another process holds it, or it cannot be written to.
    """
    directory = local_directory(checkpoint)
    if directory is None:
        yield
        return
    lock, holder = FileLock(directory / _LOCK), directory / _HOLDER
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
        holder.write_text(str(os.getpid()))
    except Timeout as exc:
        raise CheckpointError(
            f"--checkpoint {checkpoint} is in use by process {_content(holder) or 'unknown'}: one txnwatch run per "
            "checkpoint"
        ) from exc
    except OSError as exc:
        lock.release()
        why = f"--checkpoint {checkpoint}: expected a writable directory, found: {exc.strerror}"
        raise CheckpointError(why) from exc
    try:
        yield
    finally:
        lock.release()


def _content(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


# The files of txnwatch itself, beside Spark's in the checkpoint directory: they are no part of the checkpoint.
#
# If the checkpoint is not a local directory, they are in a temporary directory of this process. A clean stop removes
# that directory. After an error or a kill it stays, because somebody may have to read the log of Spark in it; later
# starts keep the newest one only.

_PREFIX: Final = "txnwatch-files-"


class SideFiles:
    """The paths of the files.

    Attributes:
        spark_log: the output of Spark.
        driver_file: what the driver wants of the source.
        evidence: what this watch has found itself, for every version.
        directory: where they are, and the positions of the targets of a push.
    """

    def __init__(self, checkpoint: str) -> None:
        directory = local_directory(checkpoint)
        self._temporary: OwnDirectory | None = None
        if directory is None:
            self._temporary = OwnDirectory(_PREFIX, keeps_last=True)
            directory = self._temporary.path
        self.directory = directory
        self.spark_log = directory / "spark.log"
        self.driver_file = directory / "txnwatch-driver.json"
        self.evidence = directory / "txnwatch-evidence.jsonl"

    def remove_temporary(self) -> None:
        """Removes the temporary directory, if there is one."""
        if self._temporary is not None:
            self._temporary.remove()


# The query's progress, from Spark's report after each micro-batch; the source's offset in it has all listed ends.


@dataclass(frozen=True, slots=True)
class Progress:
    """The last micro-batch.

    Attributes:
        phases_ms: the duration of each of Spark's phases.
        ends: each partition's end in its leader's last answer.
        reached: each partition's planned end of the batch; a task may have stopped before it (ReadLimitReached).
        looked: the partitions that are beyond the bytes per second, sorted.
    """

    phases_ms: Mapping[str, DurationMs]
    ends: Mapping[TopicPartition, Offset]
    reached: Mapping[TopicPartition, Offset]
    looked: tuple[TopicPartition, ...] = ()

    def lag_offsets(self, left: Mapping[TopicPartition, Offset]) -> int:
        """How many listed offsets are not read yet; `left` has the offsets where tasks stopped."""
        return sum(max(0, end - min(self.reached[p], left.get(p, end))) for p, end in self.ends.items())

    def furthest_behind(self, left: Mapping[TopicPartition, Offset]) -> int:
        """The same number, of the partition that is furthest behind."""
        return max((end - min(self.reached[p], left.get(p, end)) for p, end in self.ends.items()), default=0)


def read_progress(progress: Mapping[str, Any] | None) -> Progress | None:
    """Parses Spark's StreamingQueryProgress, given as a mapping; None before the first micro-batch.

    Raises:
        CheckpointError: the offset was written by another version of the source.
    """
    if progress is None or not progress["sources"]:
        return None
    end_offset = progress["sources"][0]["endOffset"]
    raw = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
    if not raw:
        return None
    offset = SourceOffset.from_json(raw)
    begun = {partition: at for partition, at in offset.positions.items() if is_begun(at)}
    return Progress(
        phases_ms=dict(progress["durationMs"]),
        ends={partition: at.listed for partition, at in begun.items()},
        reached={partition: at.offset for partition, at in begun.items()},
        looked=tuple(sorted(offset.looked)),
    )
