"""The result of one transition of a producer's state."""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.findings import Finding
from txnwatch.state.model.transaction import ProducerState


class Step(NamedTuple):
    """One transition: the new state, and the findings to emit."""

    producer: ProducerState
    emitted: tuple[Finding, ...] = ()
