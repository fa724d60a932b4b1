"""Why Spark failed: the root cause in one line, what to do next, and whether a retry can help."""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JNetworkError
from pyspark import accumulators
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from txnwatch.state.model.errors import (
    BrokerError,
    CheckpointError,
    LeaseNotRenewedError,
    QueryError,
    SinkError,
    SparkError,
    TxnwatchError,
)

# Failures of Spark that a retry cannot solve, with what an operator can do; and failures that may be temporary.

# One of these patterns in the cause, and advice. The first match decides.
PERMANENT: Final = (
    (
        ("JAVA_HOME is not set", "/bin/java: No such file", "java: not found", "UnsupportedClassVersion"),
        "install Java 17 or later, and set JAVA_HOME to it",
    ),
    (
        ("Could not parse Master URL", "Master must ", "All masters are unresponsive", "External scheduler cannot"),
        "check --master: local[N], spark://host:port, yarn or k8s://https://host:port",
    ),
    (
        ("No FileSystem for scheme", r"Class org\.apache\.hadoop\.\S+ not found", "UnsupportedFileSystem"),
        "--checkpoint: add the jars of this file system to $SPARK_HOME/jars, or use a directory",
    ),
    (
        (
            *("PACKAGE_NOT_INSTALLED", "UNSUPPORTED_PACKAGE_VERSION", "ModuleNotFoundError", "ImportError"),
            *("No module named", "PYTHON_VERSION_MISMATCH", "Cannot run program"),
        ),
        "check PYSPARK_PYTHON: it must be a Python of the driver's version, with txnwatch and all its dependencies",
    ),
    (
        (
            *("CANNOT_LOAD_STATE_STORE", "CANNOT_LOAD_CHECKPOINT", "STATE_STORE", "ChecksumException"),
            *("malformed", "MALFORMED", "Incomplete log file", "log version", r"Json\w*Exception", "MismatchedInput"),
            # a state of another format, for example one that another version of Spark wrote
            *("INVALID_LOG_VERSION", "INVALID_CHANGE_LOG_READER_VERSION", "RocksDB checkpoint metadata"),
            "STREAMING_STATEFUL_OPERATOR_NOT_MATCH",
            *("ZipException", "zip END header", "RocksDBException", "StreamCorrupted", r"Batch \d+ doesn't exist"),
            *(
                "EOFException",
                "MISSING_METADATA",
                r"(FileNotFound|NoSuchFile)Exception: .*/(offsets|commits|state|metadata)\b",
            ),
        ),
        "restore --checkpoint from a copy, or give a new directory: open incidents come from the events topic",
    ),
    (
        ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected"),
        "another driver uses this --checkpoint: one txnwatch run per checkpoint",
    ),
    (
        ("requirement failed", "IllegalArgumentException", "INVALID_CONF_VALUE"),
        "check the settings that the cause names",
    ),
)
_TRANSIENT: Final = re.compile(
    "Connection refused|Connection reset|timed out|Timeout|No space left|UnknownHost|Temporary failure|"
    "Too many open files|Cannot allocate memory|OutOfMemory|PYTHON_WORKER_EXITED|EOFException"
)
# A connection that ends is an EOFException, too. This one is the end of a file of the state, in a Java stack trace.
_SHORT_CHANGELOG: Final = re.compile(r"EOFException[^\n]*(\n\s+at [^\n]*)*\n\s+at [^\n]*\.StateStoreChangelogReader")


def may_pass(cause: str, text: str) -> bool:
    """Whether this root cause of a failure is one that often ends without an operator; `text` has its stack trace."""
    return _TRANSIENT.search(cause) is not None and _SHORT_CHANGELOG.search(text) is None


def _advice_for(causes: str) -> str:
    """What to do about these causes, one a line; empty if none of them is known to be permanent."""
    for patterns, advice in PERMANENT:
        if re.search("|".join(patterns), causes):
            return advice
    return ""


# A failure of the query or of a start: its cause in one line, and whether another attempt can help.

_LOG_LINE = re.compile(
    r"WARNING: |Using Spark's default|Setting default log level|To adjust logging|\d\d/\d\d/\d\d \d\d:"
)
_JVM_HAS_ENDED = "JAVA_GATEWAY_EXITED"
_OF_JAVA = "Py4JJavaError: An error occurred while calling"
_ATTEMPTS = 8  # two minutes of pauses
_ATTEMPTS_WITH_ONE_CAUSE = 5  # if it is not one that may pass
_MAY_PASS = (BrokerError, LeaseNotRenewedError, SinkError)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of Spark.

    Attributes:
        cause: the root cause, one line.
        advice: what to do, if a retry cannot help; else empty.
        may_pass: whether the cause is one that often ends without an operator.
    """

    cause: str
    advice: str = ""
    may_pass: bool = False

    def error(self, where: str) -> TxnwatchError:
        """The error: SparkError if a retry cannot help, else QueryError; `where` names Spark's output."""
        if self.advice:
            return SparkError(f"Spark: {self.cause}; {self.advice}; {where}")
        return QueryError(f"{self.cause}; {where}")


class Repeats:
    """Counts the starts of the query that fail without a micro-batch in between: all of them, and those with one cause.

    A cause that may pass is retried for ever only after a micro-batch has completed. Before, it may as well be a wrong
    address.
    """

    def __init__(self) -> None:
        self._last = ""
        self._times = 0
        self._starts = 0
        self._has_worked = False

    def add(self, failure: Failure) -> Failure:
        """The failure; with advice if so many starts have failed that another one does not help."""
        if failure.advice or (failure.may_pass and self._has_worked):
            return failure
        cause = re.sub(r"[0-9a-f-]{8,}|\d+", "#", failure.cause)
        self._times = self._times + 1 if cause == self._last else 1
        self._last = cause
        self._starts += 1
        if self._starts >= _ATTEMPTS and self._times < self._starts:
            return Failure(failure.cause, f"{self._starts} starts in a row failed, the last one with it")
        if self._times >= (_ATTEMPTS if failure.may_pass else _ATTEMPTS_WITH_ONE_CAUSE):
            return Failure(failure.cause, f"{self._times} starts in a row failed with it")
        return failure

    def clear(self) -> None:
        """A micro-batch has completed."""
        self._last, self._times, self._starts, self._has_worked = "", 0, 0, True


def failure_of_ours(error: TxnwatchError) -> Failure:
    """The failure that an error of txnwatch in the driver is; its class decides.

    Raises:
        CheckpointError: it is the error.
    """
    if isinstance(error, CheckpointError):
        raise error
    return Failure(str(error), may_pass=isinstance(error, _MAY_PASS))


def failure_of(text: str) -> Failure:
    """The failure that this text of an exception, or of Spark's output, describes.

    Raises:
        CheckpointError: the source or the operator has refused the checkpoint.
    """
    _raise_refusal(text)
    cause = root_cause(text)
    if may_pass(cause, text):
        return Failure(cause, may_pass=True)
    causes = "\n".join([cause, _first_line(text), *_java_causes(text), *_exceptions(text)])
    return Failure(cause, _advice_for(causes))


def _raise_refusal(text: str) -> None:
    """Raises the error with which txnwatch has refused the checkpoint in another process.

    The source runs in Spark's planner process, and the operator in Python workers. Spark returns an error of these
    processes only as a Python traceback inside the text of a Java exception. So this is the one place that searches a
    text for a class of ours, by its full name as tracebacks have it. Errors of the driver never come here as text
    (query.py).

    Raises:
        CheckpointError: the error of the other process.
    """
    name = f"{CheckpointError.__module__}.{CheckpointError.__qualname__}: "
    if name in text:
        raise CheckpointError(text.partition(name)[2].splitlines()[0])


def start_error(error: BaseException, output: str, where: str) -> TxnwatchError:
    """Why Spark did not start. If the JVM has ended, the reason is in its output."""
    has_ended = isinstance(error, PySparkException) and error.getCondition() == _JVM_HAS_ENDED
    text = output if has_ended and output.strip() else text_of(error)
    failure = failure_of(_without_log(text))
    return Failure(failure.cause, failure.advice or "Spark did not start").error(where)


def text_of(error: BaseException) -> str:
    """The whole text of an error from Spark: its message and the stack traces of the JVM."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        parts.extend([str(seen), str(getattr(seen, "_stackTrace", None) or "")])
        seen = getattr(seen, "_cause", None)
    return "\n".join(parts)


def root_cause(text: str) -> str:
    """The last line of the last Python traceback; else the deepest cause of a Java exception; else the first line."""
    causes = list(_tracebacks(text)) or _java_causes(text) or _exceptions(text)[:1]
    return _one_line(causes[-1]) if causes else _first_line(text)


def _tracebacks(text: str) -> Iterator[str]:
    is_inside = False
    for line in text.splitlines():
        stripped = line.removeprefix("\t")
        if "Traceback (most recent call last)" in stripped:
            is_inside = True
        elif is_inside and stripped.strip() and not stripped.startswith(" "):
            is_inside = False
            if _OF_JAVA not in stripped:  # its Java causes follow
                yield stripped.rpartition("errors.")[2] if stripped.startswith("txnwatch.") else stripped


def _java_causes(text: str) -> list[str]:
    return [
        line.strip().removeprefix("Caused by: ") for line in text.splitlines() if line.strip().startswith("Caused by: ")
    ]


def _exceptions(text: str) -> list[str]:
    pattern = re.compile(r"^(?:Exception in thread \S+ |: )?((?:[a-z]\w*\.)+\w+(?:Exception|Error): .*)")
    return [match.group(1) for line in text.splitlines() if (match := pattern.match(line))]


def _without_log(text: str) -> str:
    """The text without the lines of the JVM's log, which come before the reason of a failed start."""
    return "\n".join(line for line in text.splitlines() if not _LOG_LINE.match(line))


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return _one_line(lines[0]) if lines else "no reason is known"


def _one_line(text: str) -> str:
    return re.sub(r"^(?:[a-z]\w*\.)+(?=[A-Z]\w*(?:Exception|Error): )", "", text.strip())


# Why no master of a Spark cluster has answered, from the log of the JVM.
#
# After a minute Spark stops its own context while the start goes on. So the error of the start is one of several
# consequences, for example that the context is stopped. The reason is in the log.

_GIVEN_UP: Final = "All masters are unresponsive"
# An entry of the log goes on until the next line that begins with a date.
_ATTEMPT: Final = re.compile(r" Failed to connect to master (\S+)\n((?:(?!\d\d/\d\d/\d\d \d\d:).*\n?)*)")


def error_of_the_master(output: str, where: str) -> SparkError | None:
    """The error that names the master and why it was not reached; None if the start failed for another reason.

    Args:
        output: what Spark has written since the start.
        where: names the file with the output.
    """
    attempts = _ATTEMPT.findall(output)
    if not attempts or _GIVEN_UP not in output:
        return None
    master, stack = attempts[-1]
    cause = f"no connection to the master {master}: {root_cause(stack)}"
    return SparkError(f"Spark: {cause}; {_advice_for(_GIVEN_UP)}; {where}")


# Ends the JVM of a Spark session, so that no process writes to the checkpoint any more; reports a JVM that has ended.
#
# The JVM has its own session, so a signal to the process group reaches only the driver. After the signal no micro-batch
# begins. The driver waits for the current one for a short time, then interrupts it; the next start repeats a
# micro-batch that is not committed.

_ENDS_S = 2.0  # its connections are closed before its process has ended


def report_its_end_once() -> None:
    """Keeps Py4J and PySpark from writing tracebacks when the JVM ends, because `check_jvm` reports it in one line.

    An error in a callback from the JVM is not lost: Spark gets it as the answer and reports it as the query's error.
    """
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)  # a part of it uses the root logger
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _ignored


def _ignored(*_: object) -> None:
    pass


def check_jvm(session: SparkSession, output: Path, *, wait_s: float = _ENDS_S) -> None:
    """Checks that the JVM runs; `output` is the file with the output of Spark.

    Raises:
        SparkError: it has ended, and only a new process can start another one.
    """
    process = _process(session)
    if process is not None:
        how, where = _end_of(process, wait_s), f"Spark's output: {output}"
    else:
        how, where = None if _answers(session) else "has ended", "the output of spark-submit"
    if how is not None:
        raise SparkError(
            f"the JVM of Spark {how}; start txnwatch again, and check whether the machine or the container has enough "
            f"memory; more details may be in {where}"
        )


def _end_of(process: subprocess.Popen[bytes], wait_s: float) -> str | None:
    """How the process has ended; None if it still runs after some seconds."""
    try:
        code = process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _answers(session: SparkSession) -> bool:
    """Whether the JVM answers, when another program has started it."""
    try:
        session.sparkContext._jvm.System.nanoTime()  # noqa: SLF001
    except (Py4JNetworkError, OSError):
        return False
    return True


def end_jvm(session: SparkSession) -> None:
    """Stops the session and waits for the end of the JVM, which ends when its standard input is closed."""
    process = _process(session)
    with contextlib.suppress(Exception):  # Spark may be gone already
        session.stop()
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


def _process(session: SparkSession) -> subprocess.Popen[bytes] | None:
    """The JVM's process; None if another program has started it, as spark-submit does in cluster mode."""
    process: subprocess.Popen[bytes] | None = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001
    return process
