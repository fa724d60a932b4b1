"""What one micro-batch costs in counts, which no machine changes: state calls, rows and bytes follow what changes."""

from __future__ import annotations

import pytest

from bench.buckets import BUCKETS, batch_of, measure
from txnwatch.streaming.source.packed_facts import pack_facts

FEW, MANY = 32, 640
CALLS_OF_A_BUCKET = 4  # its head is read and written, and so is one entry of its log


@pytest.mark.parametrize("census", ["", "three others"], ids=["no census", "a census of others"])
def test_state_calls_do_not_follow_what_is_open(census: str) -> None:
    few, many = measure(FEW, census=census).calls, measure(MANY, census=census).calls
    assert few == many <= CALLS_OF_A_BUCKET * BUCKETS


def test_state_calls_follow_the_buckets_and_not_what_changes_in_them() -> None:
    few, many = measure(0, FEW).calls, measure(0, MANY).calls
    assert few <= many <= CALLS_OF_A_BUCKET * BUCKETS


def packed(is_open: int, changing: int) -> tuple[int, int]:
    """Rows and bytes of a later batch."""
    rows = list(pack_facts(batch_of(5, is_open, changing, ""), BUCKETS))
    return len(rows), sum(len(row[-1]) for row in rows)


def test_what_is_open_crosses_over_to_the_state_once() -> None:
    assert packed(FEW, 0) == packed(MANY, 0)
    assert packed(FEW, 10) == packed(MANY, 10)


def test_a_bucket_gets_one_row_whatever_changes() -> None:
    rows_of_few, bytes_of_few = packed(0, FEW)
    rows_of_many, bytes_of_many = packed(0, MANY)
    assert rows_of_few == rows_of_many == BUCKETS
    assert bytes_of_many <= bytes_of_few * MANY / FEW
