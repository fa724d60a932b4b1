"""What one decoder is tried with, and what it may do with any bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One decoder under test.

    Attributes:
        name: its name on the command line and of its corpus file.
        reads: what the bytes are and who writes them, for the page.
        run: decodes the bytes, and fails an assertion if the result is wrong.
        typed: the errors that invalid bytes may raise.
        first: inputs to begin with.
        is_json: whether the last line of an input is JSON; then values in it are changed too, and not only bytes.
    """

    name: str
    reads: str
    run: Callable[[bytes], object]
    typed: tuple[type[Exception], ...]
    first: Sequence[bytes]
    is_json: bool = False

    def try_with(self, data: bytes) -> None:
        """Decodes once.

        Raises:
            Exception: any error but those in `typed`.
        """
        try:
            self.run(data)
        except self.typed:
            return
