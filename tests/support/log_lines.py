"""Logs of tests: one that keeps its messages as lines, and that of `txnwatch run` for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from txnwatch.cli.output import LOG


class LogLines(list[str]):
    """Implements the port `Log`; a warning has the mark that `txnwatch run` prints."""

    def info(self, message: str, /) -> None:
        self.append(message)

    def warning(self, message: str, /) -> None:
        self.append(f"warning: {message}")


@contextmanager
def log_restored() -> Iterator[None]:
    """Takes back what `log_to_stdout` does inside."""
    handlers, level, propagate = LOG.handlers[:], LOG.level, LOG.propagate
    try:
        yield
    finally:
        LOG.handlers[:], LOG.propagate = handlers, propagate
        LOG.setLevel(level)
