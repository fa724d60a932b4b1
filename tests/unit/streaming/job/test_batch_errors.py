"""The error with which txnwatch itself has ended a micro-batch is kept as an object."""

from __future__ import annotations

import pytest

from txnwatch.state.model.errors import SinkError
from txnwatch.streaming.job.query import BatchErrors


def test_an_error_of_txnwatch_is_kept_and_raised() -> None:
    errors, error = BatchErrors(), SinkError("not delivered")
    with pytest.raises(SinkError), errors.kept():
        raise error
    assert errors.last is error


def test_another_error_is_only_raised() -> None:
    errors = BatchErrors()
    with pytest.raises(OSError, match="full"), errors.kept():
        raise OSError("full")
    assert errors.last is None
