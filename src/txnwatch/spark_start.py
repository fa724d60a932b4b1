"""Starts Spark for a watch: where its output goes, and what its errors mean.

Law: this module imports Spark only for a session, because the JVM begins before these imports.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from txnwatch.setting_sources import ENVIRONMENT_PREFIX, hidden_from_children
from txnwatch.state.model.errors import ConfigError, SparkError
from txnwatch.state.model.ports import Log
from txnwatch.streaming.job.jvm import (
    StartingJvm,
    existing_place,
    installed_spark,
    new_archive,
    options_that_make,
    prepared_for,
)
from txnwatch.streaming.job.spark_conf import JAVA_OPTIONS, SessionSettings

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


class HeldOutput:
    """The output of a JVM: a pipe holds it until the file for it is known. A JVM that writes more than 64 KB waits.

    Attributes:
        writing: the descriptor for the JVM, which is closed here when the JVM has it.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()

    def is_given(self) -> None:
        """The JVM has the descriptor now, so the copying ends with that JVM."""
        os.close(self.writing)

    @contextlib.contextmanager
    def kept_in(self, log: Path) -> Iterator[Callable[[], str]]:
        """Copies all output to a file from now on, also after the block; gives a function that reads what is new.

        The function waits a moment for a JVM that ends.

        Raises:
            ConfigError: the file cannot be written.
        """
        try:
            file = RotatedLog(log)
        except OSError as exc:
            raise ConfigError(
                f"{log}: expected a file for Spark's output that can be written, found: {exc.strerror}"
            ) from exc
        with NewText(log) as new_text:
            copier = threading.Thread(target=_copy, args=(self._reading, file), name="spark output", daemon=True)
            copier.start()

            def written() -> str:
                copier.join(_PATIENCE_S)
                return new_text.read()

            yield written


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


# The start, and the start that makes the archive of classes.

_TRAINING_MASTER = "local[2]"


class SparkStart:
    """A start of Spark: the JVM begins at once, the session follows when everything else is checked.

    Raises:
        SparkError: Spark has no program that starts the JVM.
    """

    def __init__(self, settings: SessionSettings) -> None:
        self._interpreter = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self._output = HeldOutput()
        try:
            with hidden_from_children(ENVIRONMENT_PREFIX):
                self._jvm = StartingJvm(settings, self._output.writing)
        finally:
            self._output.is_given()

    def session(self, spark_log: Path) -> SparkSession:
        """The session: the output of the JVM and its workers goes to `spark_log`.

        Raises:
            SparkError: Spark does not start.
            ConfigError: `spark_log` cannot be written.
        """
        with self.explained(spark_log) as jvm:
            from txnwatch.streaming.job.query import spark_session  # noqa: PLC0415 - see the law

            return spark_session(jvm)

    @contextlib.contextmanager
    def explained(self, spark_log: Path) -> Iterator[StartingJvm]:
        """The JVM, for a block in which an error of Spark gets a text for people; the rest as above."""
        from py4j.protocol import Py4JError  # noqa: PLC0415 - see the law
        from pyspark.errors import PySparkException  # noqa: PLC0415

        from txnwatch.streaming.job.failures import (  # noqa: PLC0415
            error_of_the_master,
            report_its_end_once,
            start_error,
        )

        report_its_end_once()
        with hidden_from_children(ENVIRONMENT_PREFIX):
            check_interpreter(self._interpreter)
            with self._output.kept_in(spark_log) as written:
                try:
                    yield self._jvm
                except (Py4JError, PySparkException, ImportError) as exc:
                    output, where = written(), f"details: {spark_log}"
                    raise (error_of_the_master(output, where) or start_error(exc, output, where)) from exc

    def end(self) -> None:
        """Ends the JVM within about a second, with what it has made."""
        self._jvm.end()

    def kill(self) -> None:
        """Kills the JVM, unless it has ended."""
        self._jvm.kill()


def prepared(spark_log: Path, scratch: Path) -> Path:
    """Writes the archive of classes of this Python environment, and returns its path.

    `scratch` is an empty directory for temporary files; `spark_log` gets the output of Spark.

    Raises:
        SparkError: Spark does not start, or writes no archive.
        ConfigError: the environment or `spark_log` cannot be written, or no start would use an archive.
    """
    real = installed_spark()
    with new_archive(real) as archive:
        conf = {JAVA_OPTIONS: options_that_make(archive)}
        start = SparkStart(SessionSettings(str(scratch / "checkpoint"), _TRAINING_MASTER, scratch, conf=conf))
        try:
            with start.explained(spark_log) as jvm:
                from txnwatch.streaming.job.query import write_archive  # noqa: PLC0415 - see the law

                is_written = write_archive(jvm, archive)
        finally:
            start.kill()  # a JVM that ends by itself would write the archive first
    made = prepared_for(real)
    if not is_written or made is None or made.archive is None:
        raise SparkError(f"expected that the JVM writes an archive of its classes at its end; details: {spark_log}")
    return made.archive


# The archive for the next start, made beside a watch.
#
# Law: the watch comes first. The archive is made once the watch is ready, by a process with the lowest priority, and
# only with a processor and memory to spare. A stop of the watch ends that process; no error of it ends the watch. It
# takes half a minute. On a busy machine it gets no processor and would hold its memory for an hour, so it ends then.

INTERPRETER: Final = (sys.executable, "-P")  # -P: no module of the working directory is loaded
_LOWEST: Final = ("nice", "-n", "40")  # relative: beyond the end from every priority
_SPARE_BYTES: Final = 2 << 30
MADE_WITHIN_S: Final = 300.0
MEMORY: Final = Path("/proc/meminfo")
GROUP: Final = Path("/sys/fs/cgroup")
_BY_HAND: Final = "`txnwatch prepare` makes it (docs/install.md)"
_GAIN: Final = "a start with an archive of the JVM's classes takes a quarter less time"


class NextStart:
    """Makes the archive of classes while a watch runs; says why not if it may not."""

    def __init__(
        self,
        log: Log,
        command: Sequence[str] = (*INTERPRETER, "-m", "txnwatch", "prepare"),
        *,
        within_s: float = MADE_WITHIN_S,
    ) -> None:
        self._log, self._command, self._within_s = log, command, within_s
        self._process: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        """Begins it, or says why it may not; returns at once."""
        why = why_no_archive()
        if why is not None:
            self._log.info(f"{_GAIN}; none is made now: {why}; {_BY_HAND}")
            return
        self._log.info(f"{_GAIN}: it is made now in the background, for the next start")
        with hidden_from_children(ENVIRONMENT_PREFIX):
            environ = dict(os.environ)
        nice = _LOWEST if shutil.which(_LOWEST[0]) is not None else ()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                [*nice, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environ,
                start_new_session=True,
            )
        except OSError as exc:
            self._log.info(f"no archive of classes is made: {exc}")
            return
        threading.Thread(target=self._report, args=(self._process,), name="archive of classes", daemon=True).start()

    def end(self) -> None:
        """Ends the process; its JVM ends with it."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            _stop(process)

    def _report(self, process: subprocess.Popen[str]) -> None:
        try:
            _, errors = process.communicate(timeout=self._within_s)
        except subprocess.TimeoutExpired:
            _stop(process)
            process.communicate()
            errors = f"it took more than {self._within_s:.0f} s; {_BY_HAND}"
        if process is not self._process:
            return  # a stop has ended it
        if process.returncode == 0:
            self._log.info("the archive of classes is made: the next start takes less time")
        else:
            why = errors.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
            self._log.info(f"no archive of classes was made: {why[0]}")


def _stop(process: subprocess.Popen[str]) -> None:
    """Not SIGKILL: `prepare` has to kill its JVM, which is in another process group."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()


def why_no_archive() -> str | None:
    """Why a watch must not make the archive on this machine now; None if it may."""
    place = existing_place()
    if not os.access(place, os.W_OK | os.X_OK):
        return f"this user may not write {place}"
    if len(os.sched_getaffinity(0)) < 2:  # one is for the watch
        return "there is one processor only"
    spare = _spare_bytes()
    if spare is not None and spare < _SPARE_BYTES:
        return f"{spare >> 20} MB of memory are free, and it needs {_SPARE_BYTES >> 20} MB"
    return None


def _spare_bytes() -> int | None:
    """The memory that is free on this machine, and in the control group of a container; None if neither is known."""
    spare: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        line = next(line for line in MEMORY.read_text().splitlines() if line.startswith("MemAvailable:"))
        spare.append(int(line.split()[1]) << 10)
    with contextlib.suppress(OSError, ValueError):
        spare.append(int((GROUP / "memory.max").read_text()) - int((GROUP / "memory.current").read_text()))
    return min(spare, default=None)


# Runs the interpreter of Spark's Python workers once before Spark starts.
#
# Spark waits ten seconds for the connection of a worker that has ended at once, and its error names no program.

_ANSWERS_S = 30.0
_ANSWER = "a Python answers"
_ADVICE = "check PYSPARK_PYTHON: it must be a Python of the driver's version, with txnwatch and all its dependencies"


def check_interpreter(interpreter: str, *, answers_s: float = _ANSWERS_S) -> None:
    """Checks that a program is a Python. The interpreter of the driver itself is not run.

    Raises:
        SparkError: there is no such program, it is something else, it cannot be run, or it does not answer in time.
    """
    if interpreter == sys.executable:
        return
    if shutil.which(interpreter) is None:
        raise SparkError(f"PYSPARK_PYTHON: expected a Python interpreter, found no program {interpreter}")
    wrong = _what_is_wrong(interpreter, answers_s)
    if wrong is not None:
        raise SparkError(
            f"PYSPARK_PYTHON: expected a Python interpreter, found {interpreter}, which {wrong}; {_ADVICE}"
        )


def _what_is_wrong(interpreter: str, answers_s: float) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - the operator's own program
            [interpreter, "-c", f"print({_ANSWER!r})"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=answers_s,
        )
    except subprocess.TimeoutExpired:
        return f"does not answer within {answers_s:.0f} s"
    except OSError as exc:
        return f"cannot be run: {exc.strerror}"
    if done.returncode != 0:
        return f"ends with exit code {done.returncode}{_last_line(done.stderr)}"
    return None if _ANSWER.encode() in done.stdout else "does not run Python code"


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""
