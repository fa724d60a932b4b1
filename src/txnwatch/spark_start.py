"""Starts Spark for a watch: where its output goes, and what its errors mean."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Self

from txnwatch.config import RunSettings
from txnwatch.setting_sources import ENVIRONMENT_PREFIX, hidden_from_children
from txnwatch.state.model.errors import ConfigError, SparkError
from txnwatch.streaming.job.failures import error_of_the_master, start_error
from txnwatch.streaming.job.spark_conf import check_interpreter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Keeps the output of Spark (the JVM and its workers) in a file of limited size, and away from the terminal.
#
# The JVM writes into a pipe, and a thread of this process copies it to the file. So the limit holds for all output: the
# log of the JVM, its crashes, and the tracebacks of the Python workers.

LIMIT_BYTES = 10 << 20
OLDER_FILES = 2
_CHUNK = 1 << 16
_PATIENCE_S = 1.0
_ONE_BYTE_A_CHARACTER = "latin-1"


class RotatedLog(RotatingFileHandler):
    """A file that is renamed to FILE.1 when it is full; FILE.1 becomes FILE.2, and the oldest file is removed."""

    terminator = ""

    def __init__(self, path: Path, *, limit_bytes: int = LIMIT_BYTES, older_files: int = OLDER_FILES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, maxBytes=limit_bytes, backupCount=older_files, encoding=_ONE_BYTE_A_CHARACTER)

    def write(self, data: bytes) -> None:
        """Appends bytes as they are."""
        self.handle(logging.makeLogRecord({"msg": data.decode(_ONE_BYTE_A_CHARACTER)}))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drops the data after a failure (a full disk), because the writer must never wait for the disk."""


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[int]:
    """A descriptor for the output of a JVM that starts in the block; the copying ends with that JVM.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        file = RotatedLog(log)
    except OSError as exc:
        raise ConfigError(
            f"{log}: expected a file for Spark's output that can be written, found: {exc.strerror}"
        ) from exc
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
    with contextlib.suppress(OSError):
        file.close()


class NewText:
    """Reads what is written to a log from now on, also if its file is renamed or removed; a context manager."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file = log.open("rb")  # so that no other file gets its inode
        self._file.seek(0, os.SEEK_END)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self) -> str:
        """The text until now."""
        own = os.fstat(self._file.fileno()).st_ino
        newer: list[bytes] = []
        for file in (self._log, *(self._log.with_name(f"{self._log.name}.{n + 1}") for n in range(OLDER_FILES))):
            with contextlib.suppress(OSError):
                if file.stat().st_ino == own:
                    break
                newer.append(file.read_bytes())
        return b"".join([self._file.read(), *reversed(newer)]).decode(errors="replace")


def started_session(
    settings: RunSettings, checkpoint: str, master: str, spark_log: Path, scratch: Path
) -> SparkSession:
    """A new Spark session: the output of the JVM and its workers goes to `spark_log`, temporary files to `scratch`.

    Raises:
        SparkError: Spark does not start.
        ConfigError: `spark_log` cannot be written.
    """
    with _starting(spark_log) as output:
        from txnwatch.streaming.job.query import spark_session  # noqa: PLC0415

        return spark_session(
            checkpoint,
            master=master,
            is_checkpoint_shared=settings.checkpoint_is_shared,
            conf=settings.spark_conf,
            state_partitions=settings.state_partitions,
            output=output,
            scratch=scratch,
        )


def prepared(spark_log: Path, scratch: Path) -> Path:
    """Writes the archive of classes of this Python environment, and returns its path; the rest as above.

    Raises:
        SparkError: Spark does not start, or writes no archive.
        ConfigError: the environment or `spark_log` cannot be written.
    """
    with _starting(spark_log) as output:
        from txnwatch.streaming.job.training import write_archive  # noqa: PLC0415

        written = write_archive(scratch, output)
    if written is None:
        raise SparkError(f"expected that the JVM writes an archive of its classes at its end; details: {spark_log}")
    return written


@contextlib.contextmanager
def _starting(spark_log: Path) -> Iterator[int]:
    """A descriptor for the output of the JVM that starts in the block; an error of Spark gets a text for people."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from txnwatch.streaming.job.failures import report_its_end_once  # noqa: PLC0415

    report_its_end_once()
    interpreter = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with hidden_from_children(ENVIRONMENT_PREFIX):
        check_interpreter(interpreter)
    with contextlib.ExitStack() as stack:
        try:
            with output_to(spark_log) as output, hidden_from_children(ENVIRONMENT_PREFIX):
                new_text = stack.enter_context(NewText(spark_log))
                yield output
        except (Py4JError, PySparkException, ImportError) as exc:
            written, where = new_text.read(), f"details: {spark_log}"
            raise (error_of_the_master(written, where) or start_error(exc, written, where)) from exc


def pid_of_jvm(session: SparkSession) -> int:
    """The process id of the JVM of a session; the JVM runs on this machine, whoever has started it."""
    return int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # noqa: SLF001 - as in failures.py
