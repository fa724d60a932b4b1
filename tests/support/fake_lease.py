"""A Lease in memory: held until somebody else has it."""

from __future__ import annotations

from collections.abc import Callable


class FakeLease:
    """A lease.

    Attributes:
        held: what is_held returns.
        held_now: what the group's coordinator would answer.
        passed_on: how often it was passed on.
    """

    problem: str | None = None

    def __init__(self) -> None:
        self.held = True
        self.held_now = True
        self.passed_on = 0
        self.before_asking: Callable[[], object] = lambda: None

    def is_held(self) -> bool:
        """See Lease."""
        return self.held

    def is_held_now(self) -> bool:
        """See Lease."""
        self.before_asking()
        return self.held and self.held_now

    def pass_on(self) -> None:
        """See Lease."""
        self.held = False
        self.passed_on += 1

    def close(self) -> None:
        """See Lease."""
