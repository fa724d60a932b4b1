"""The log: of `txnwatch run` on standard output, and of the other commands on standard error.

`run` writes lines for people, or one JSON object per line for programs (`--log-format`). The other commands write their
warnings for people, because standard output has the answer.

Spark's output goes to a file of its own (streaming/job), and the HTTP server writes no log of requests.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from dataclasses import asdict
from typing import Any

from txnwatch.cli.output import delivering, event_line, utc
from txnwatch.state.model.errors import OutputError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.text import json_text, printable, redacted

ROOT = logging.getLogger("txnwatch")
TEXT, JSON = "text", "json"
_INCIDENT, _STEP = "incident", "step"
_ERASED = "\r\x1b[K"  # the cursor at the beginning of a line that is empty again


def log_to_stdout(log_format: str) -> None:
    """Writes everything from INFO up to standard output, as `text` or `json`; replaces an earlier call."""
    _write_to(_Lines(), _JsonFormatter() if log_format == JSON else _TextFormatter(), logging.INFO)


def log_to_stderr() -> None:
    """Writes warnings to standard error, as lines for people; replaces an earlier call."""
    _write_to(_ErrorLines(), _CommandFormatter(), logging.WARNING)


def _write_to(handler: logging.Handler, formatter: logging.Formatter, level: int) -> None:
    handler.setFormatter(formatter)
    ROOT.handlers[:] = [handler]
    ROOT.setLevel(level)
    ROOT.propagate = False


def print_error(error: Exception) -> None:
    """Writes the error that ends a command to standard error: one line, or a JSON object if the log has JSON."""
    line = f"txnwatch: {printable(redacted(str(error)))}"
    for handler in ROOT.handlers:
        if isinstance(handler.formatter, _JsonFormatter):
            line = handler.format(ROOT.makeRecord(ROOT.name, logging.ERROR, "", 0, str(error), (), None))
    print(line, file=sys.stderr)


def log_incident(event: IncidentEvent) -> None:
    """Writes an incident event to the log."""
    ROOT.getChild("events").info(event_line(event), extra={_INCIDENT: event})


def log_step(message: str) -> None:
    """Writes what a start does now: a line of the log, or on a terminal a line that the next one replaces."""
    ROOT.info(message, extra={_STEP: True})


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._shows_step = False

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line; a failure (a full disk) does not end the watch, because events are on their topic."""
        before, self._shows_step = self._shows_step, hasattr(record, _STEP) and self._is_on_terminal()
        with contextlib.suppress(OutputError), delivering():
            text, end = self.format(record), "" if self._shows_step else "\n"
            print(f"{_ERASED if before else ''}{text}", end=end, flush=True)

    def _is_on_terminal(self) -> bool:
        return isinstance(self.formatter, _TextFormatter) and sys.stdout.isatty()


class _ErrorLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line; a failure does not end the command, because its answer is on standard output."""
        with contextlib.suppress(OSError):
            print(self.format(record), file=sys.stderr, flush=True)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Time and message; a warning is marked. The line of an incident has its own time."""
        if hasattr(record, _INCIDENT):
            return record.getMessage()
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        return printable(redacted(f"{_time(record)}  {mark}{record.getMessage()}"))


class _CommandFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Program, level and message."""
        return printable(redacted(f"txnwatch: {record.levelname.lower()}: {record.getMessage()}"))


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger and message; the fields of an incident event as `incident`."""
        found: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        event = getattr(record, _INCIDENT, None)
        if event is not None:
            found["incident"] = asdict(event)
        return json_text(found)


def _time(record: logging.LogRecord) -> str:
    return utc(TimestampMs(int(record.created * 1000)))
