"""Kafka's names of the error codes in answers."""

from __future__ import annotations

from kafka import errors as kafka_errors

from txnwatch.state.model.problem import ErrorCode, Problem


def problem_of(code: int) -> Problem | None:
    """The problem that an error code of an answer reports; None if it reports no error."""
    return Problem(error_name(code), code) if code != ErrorCode.NONE else None


def error_name(code: int) -> str:
    """Kafka's name of an error code, for example NOT_LEADER_OR_FOLLOWER."""
    known: str | None = getattr(kafka_errors.for_code(code), "message", None)
    return known or f"error {code}"
