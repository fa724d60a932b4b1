"""Reads and locks a checkpoint without Spark: its last offset, and the process that uses it now."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from txnwatch.state.model.errors import CheckpointError
from txnwatch.streaming.source.offsets import SourceOffset

_LOCK = ".txnwatch-lock"
_HOLDER = ".txnwatch-holder"  # a file of its own, because taking the lock empties the lock's file


def local_directory(checkpoint: str) -> Path | None:
    """The checkpoint's directory if it is on this machine's file system, else None."""
    if checkpoint.startswith("file:"):
        return Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    return None if "://" in checkpoint else Path(checkpoint)


def last_offset(checkpoint: str) -> SourceOffset | None:
    """The last planned offset; None for a new checkpoint, or one that is not local.

    Raises:
        CheckpointError: the checkpoint has an offset that txnwatch did not write.
    """
    directory = local_directory(checkpoint)
    offsets = directory / "offsets" if directory is not None else None
    if offsets is None or not offsets.is_dir():
        return None
    batches = [int(entry.name) for entry in offsets.iterdir() if entry.name.isdigit()]
    if not batches:
        return None
    latest = offsets / str(max(batches))
    lines = latest.read_text().splitlines()
    try:
        return SourceOffset.from_json(json.loads(lines[2]))
    except (IndexError, ValueError, KeyError, TypeError) as exc:
        raise CheckpointError(
            f"--checkpoint {checkpoint}: expected txnwatch's offsets in {latest}, found something else: it is another "
            "program's checkpoint, or damaged; give txnwatch a directory of its own"
        ) from exc


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
