"""Where a place in a partition is, and the text that names it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.state.model.findings import OpenSpan
from txnwatch.state.model.values import PartitionOffset, SpanStart, TopicPartition

ORDERS = TopicPartition("orders", 3)
PLACES = st.builds(
    PartitionOffset,
    st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True), st.integers(0, 2**31 - 1)),
    st.integers(0, 10**18 - 1),
)


@given(PLACES)
def test_the_text_of_a_place_gives_it_back(place: PartitionOffset) -> None:
    assert PartitionOffset.parse(str(place)) == place


@pytest.mark.parametrize(
    "text",
    ["", "orders", "orders-3", "orders@5", "-3@5", "orders-3@", "orders-3@-5", "orders-3@x", "orders-3@" + "9" * 19,
     "orders-3@5 ", "orders-x@5", "orders-+3@5", "orders-3@5@"],
)  # fmt: skip
def test_another_text_names_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="TOPIC-PARTITION@OFFSET"):
        PartitionOffset.parse(text)


def test_open_data_begins_at_a_place() -> None:
    start = SpanStart(ORDERS, 7, 12)
    assert start.place == OpenSpan(ORDERS, 12, 0).place == PartitionOffset(ORDERS, 12)
    assert (str(start.place), str(start)) == ("orders-3@12", "orders-3@12 of producer id 7")


def test_a_place_is_stored_as_a_list() -> None:
    assert msgspec.json.encode(PartitionOffset(ORDERS, 12)) == b'[["orders",3],12]'
