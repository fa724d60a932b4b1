"""Why Spark failed: the root cause in one line, what to do next, and whether a retry can help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.errors import PySparkException

from txnwatch.state.model.errors import (
    BrokerError,
    CheckpointError,
    LeaseNotRenewedError,
    OtherVersionError,
    QueryError,
    SinkError,
    SparkError,
    TxnwatchError,
)
from txnwatch.streaming.job.failure_table import advice_for, is_of_another_version, may_pass

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
        OtherVersionError: the state has the format of another version of txnwatch or Spark.
        CheckpointError: the source has refused the checkpoint.
    """
    _raise_refusal(text)
    cause = root_cause(text)
    if may_pass(cause, text):
        return Failure(cause, may_pass=True)
    causes = "\n".join([cause, _first_line(text), *_java_causes(text), *_exceptions(text)])
    if is_of_another_version(causes):
        raise OtherVersionError(f"Spark cannot read the state in the checkpoint: {cause}")
    return Failure(cause, advice_for(causes))


def _raise_refusal(text: str) -> None:
    """Raises the error with which txnwatch has refused the checkpoint in another process.

    The source runs in Spark's planner process, and the operator in Python workers. Spark returns an error of these
    processes only as a Python traceback inside the text of a Java exception. So this is the one place that searches a
    text for a class of ours, by its full name as tracebacks have it. Errors of the driver never come here as text
    (batch_errors.py).

    Raises:
        OtherVersionError, CheckpointError: the error of the other process.
    """
    for refusal in (OtherVersionError, CheckpointError):
        name = f"{refusal.__module__}.{refusal.__qualname__}: "
        if name in text:
            raise refusal(text.partition(name)[2].splitlines()[0])


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
    found = list(_tracebacks(text)) or _java_causes(text) or _exceptions(text)[:1]
    return _one_line(found[-1]) if found else _first_line(text)


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
