"""A log that keeps its messages as lines, a warning with the mark that `txnwatch run` prints."""

from __future__ import annotations


class LogLines(list[str]):
    """Implements the port `Log`."""

    def info(self, message: str, /) -> None:
        self.append(message)

    def warning(self, message: str, /) -> None:
        self.append(f"warning: {message}")
