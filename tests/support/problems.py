"""Problems as brokers report them, by the text that a test gives."""

from __future__ import annotations

from txnwatch.state.model.values import ErrorCode, Problem


def a_problem(text: str) -> Problem:
    """The problem with this text; the name of one of Kafka's errors has its code."""
    return Problem(text, ErrorCode.__members__.get(text))
