"""Logs of tests: one that keeps its messages as lines, and that of `txnwatch run` for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from txnwatch.cli.log_output import ROOT


class LogLines(list[str]):
    """Implements the port `Log`; a warning has the mark that `txnwatch run` prints."""

    def info(self, message: str, /) -> None:
        self.append(message)

    def warning(self, message: str, /) -> None:
        self.append(f"warning: {message}")


@contextmanager
def log_restored() -> Iterator[None]:
    """Takes back what `log_to_stdout` does inside."""
    handlers, level, propagate = ROOT.handlers[:], ROOT.level, ROOT.propagate
    try:
        yield
    finally:
        ROOT.handlers[:], ROOT.propagate = handlers, propagate
        ROOT.setLevel(level)
