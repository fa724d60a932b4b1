"""Answers of brokers that do not follow the schema are refused, and so are answers about another number of things."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.admin import ListTransactionsRequest, ListTransactionsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.streaming.client.connection import decode_answer, error_name, the_one


def header_of(request: Any) -> Any:
    request.with_header(correlation_id=1, client_id="test")
    return request.header


LISTING = header_of(ListTransactionsRequest(version=0, state_filters=[], producer_id_filters=[]))
METADATA = header_of(MetadataRequest(version=12, topics=None))
ROW = ListTransactionsResponse.TransactionState(transactional_id="app", producer_id=7, transaction_state="Ongoing")


def listing(*, states: Any, filters: Any) -> bytes:
    made = ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=filters, transaction_states=states
    )
    return bytes(made.encode(version=0))


def test_an_answer_that_follows_the_schema_is_decoded() -> None:
    (row,) = decode_answer(LISTING, listing(states=[ROW], filters=["Odd"])).transaction_states
    assert row.transactional_id == "app"


def test_a_null_that_the_schema_allows_is_decoded() -> None:
    made = MetadataResponse(throttle_time_ms=0, brokers=[], cluster_id=None, controller_id=1, topics=[])
    assert decode_answer(METADATA, bytes(made.encode(version=12))).cluster_id is None


WHOLE = listing(states=[ROW], filters=["Odd"])
NULLS = {
    "a list": (WHOLE.replace(b"\x02\x04Odd", b"\x00"), "unknown_state_filters"),
    "a text in a list": (WHOLE.replace(b"\x04Odd", b"\x00"), "unknown_state_filters"),
    "a text of a row": (WHOLE.replace(b"\x04app", b"\x00"), "transaction_states.transactional_id"),
}


@pytest.mark.parametrize(("body", "where"), NULLS.values(), ids=NULLS.keys())
def test_a_null_that_the_schema_does_not_have_is_an_error(body: bytes, where: str) -> None:
    assert body != WHOLE
    with pytest.raises(
        WireError, match=f"ListTransactionsResponse.*: expected an answer of version 0, found null in {where}"
    ):
        decode_answer(LISTING, body)


@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_an_answer_that_is_cut_off_is_an_error(size: int) -> None:
    with pytest.raises(WireError):
        decode_answer(LISTING, WHOLE[:size])


@pytest.mark.parametrize("items", [[], [1, 2]])
def test_an_answer_about_another_number_of_things_is_an_error(items: list[int]) -> None:
    with pytest.raises(BrokerError, match=f"expected an answer about one thing, found {len(items)}"):
        the_one(items)
    assert the_one([5]) == 5


@pytest.mark.parametrize(("code", "name"), [(0, "NO_ERROR"), (-1, "UNKNOWN"), (51, "CONCURRENT_TRANSACTIONS")])
def test_an_error_has_its_name(code: int, name: str) -> None:
    assert error_name(code) == name


def test_an_error_of_a_newer_broker_has_its_number() -> None:
    assert error_name(134) == "error 134"
