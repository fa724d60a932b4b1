"""Keeps the output of Spark (the JVM and its workers) in a file of limited size, and away from the terminal.

The JVM writes into a pipe, and a thread of this process copies it to the file. So the limit holds for all output: the
log of the JVM, its crashes, and the tracebacks of the Python workers.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

LIMIT_BYTES = 10 << 20
OLDER_FILES = 2
_CHUNK = 1 << 16
_PATIENCE_S = 1.0


class RotatedLog:
    """A file that is renamed to FILE.1 when it is full; FILE.1 becomes FILE.2, and the oldest file is removed."""

    def __init__(self, path: Path, *, limit_bytes: int = LIMIT_BYTES, older_files: int = OLDER_FILES) -> None:
        self.path = path
        self._limit = limit_bytes
        self._older = older_files
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def write(self, data: bytes) -> None:
        """Appends; a failure (a full disk) drops the data, because the writer must never wait for the disk."""
        with contextlib.suppress(OSError):
            if self._file.tell() + len(data) > self._limit:
                self._rotate()
            self._file.write(data)
            self._file.flush()

    def _rotate(self) -> None:
        for number in range(self._older, 0, -1):
            newer = self._numbered(number - 1)
            if newer.exists():
                newer.replace(self._numbered(number))
        full, self._file = self._file, self.path.open("ab")
        full.close()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path

    def close(self) -> None:
        """Closes the file."""
        with contextlib.suppress(OSError):
            self._file.close()


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[int]:
    """A descriptor for the output of a JVM that starts in the block; the copying ends with that JVM."""
    file = RotatedLog(log)
    reading, writing = os.pipe()
    copier = threading.Thread(target=_copy, args=(reading, file), name="spark output", daemon=True)
    copier.start()
    try:
        yield writing
    except BaseException:
        os.close(writing)
        copier.join(_PATIENCE_S)  # the caller reads in the file why the JVM did not start
        raise
    os.close(writing)


def _copy(reading: int, file: RotatedLog) -> None:
    while data := os.read(reading, _CHUNK):
        file.write(data)
    os.close(reading)
    file.close()


def text_since(log: Path, begin: int) -> str:
    """What was appended to the file, or the whole file if it was renamed in between."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(begin if log.stat().st_size >= begin else 0)
        return file.read().decode(errors="replace")
    return ""
