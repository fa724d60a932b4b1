"""The error with which txnwatch itself has ended a micro-batch, as an object.

Spark reports an error of `foreachBatch` as the text of a Java exception. The code that decides about a restart runs in
the same process, so it gets the error itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from txnwatch.state.model.errors import TxnwatchError


class BatchErrors:
    """Keeps the last error of a query.

    Attributes:
        last: None if txnwatch has raised none since the query was started.
    """

    def __init__(self) -> None:
        self.last: TxnwatchError | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keeps the error that leaves the block."""
        try:
            yield
        except TxnwatchError as exc:
            self.last = exc
            raise
