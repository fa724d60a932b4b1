"""A Lease in memory: held until somebody else has it."""

from __future__ import annotations

from collections.abc import Callable

from txnwatch.state.model.ports import LeaseView


class FakeLease:
    """A lease.

    Attributes:
        held: whether this instance has it.
        held_now: what the group's coordinator would answer.
        is_answering: whether the coordinator answers.
    """

    problem: str | None = None
    losses = 0

    def __init__(self) -> None:
        self.held = True
        self.held_now = self.is_answering = True
        self.before_asking: Callable[[], object] = lambda: None

    def view(self) -> LeaseView:
        """See Lease."""
        if not self.is_answering:
            return LeaseView.UNKNOWN
        return LeaseView.HELD if self.held else LeaseView.ANOTHERS

    def is_held_now(self) -> bool:
        """See Lease."""
        self.before_asking()
        return self.held and self.held_now

    def close(self) -> None:
        """See Lease."""
