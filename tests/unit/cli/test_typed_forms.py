"""What a person may type: each row of the table is found, and the nearest names are the ones that were meant."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnwatch.cli.typed_forms import FORMS, TypedKind, TypedReading, distance, nearest, readings, same_but_for_case

INCIDENT = "5a105e8b9d40e1329780d62ea2265d8a"
PARTITION = TypedReading(TypedKind.PARTITION, "payments", 1)
RECORD = TypedReading(TypedKind.RECORD, "payments", 1, 42)
FOUND = TypedReading(TypedKind.INCIDENT, incident=INCIDENT)
TYPED = {
    "payments/1": PARTITION,
    "payments:1": PARTITION,
    "payments 1": PARTITION,
    "payments [1]": PARTITION,
    "payments[1]": PARTITION,
    "payments, partition 1": PARTITION,
    "topic payments partition 1": PARTITION,
    "topic=payments partition=1": PARTITION,
    " payments#1 ": PARTITION,
    "payments/1/42": RECORD,
    "payments-1:42": RECORD,
    "payments 1 42": RECORD,
    "payments-1 offset 42": RECORD,
    "payments [1] at offset 42": RECORD,
    "topic payments, partition 1, offset 42": RECORD,
    "partition 1": TypedReading(TypedKind.EACH_PARTITION, partition=1),
    "Partition-1": TypedReading(TypedKind.EACH_PARTITION, partition=1),
    "offset 42": TypedReading(TypedKind.EACH_OFFSET, offset=42),
    "@42": TypedReading(TypedKind.EACH_OFFSET, offset=42),
    INCIDENT: FOUND,
    INCIDENT.upper(): FOUND,
    f"{INCIDENT}-3": FOUND,
    f"incident {INCIDENT}": FOUND,
    f"https://txnwatch.example/incident/{INCIDENT}": FOUND,
    "topic payments": TypedReading(TypedKind.TOPIC, name="payments"),
    "group billing": TypedReading(TypedKind.GROUP, name="billing"),
    "group.id=billing": TypedReading(TypedKind.GROUP, name="billing"),
    "consumer group billing": TypedReading(TypedKind.GROUP, name="billing"),
    "transactional.id=checkout-7": TypedReading(TypedKind.ID, name="checkout-7"),
    "transactional id checkout-7": TypedReading(TypedKind.ID, name="checkout-7"),
    "producerId=7": TypedReading(TypedKind.PRODUCER, name="7"),
    "producer id 7": TypedReading(TypedKind.PRODUCER, name="7"),
}


@pytest.mark.parametrize(("text", "reading"), TYPED.items(), ids=TYPED.keys())
def test_a_form_is_read(text: str, reading: TypedReading) -> None:
    assert reading in list(readings(text))


@pytest.mark.parametrize("text", ["payments", "checkout-a", "partition", "offset x", "payments-1x", INCIDENT[1:], ""])
def test_another_text_has_no_reading(text: str) -> None:
    assert list(readings(text)) == []


@pytest.mark.parametrize("text", ["a-99999999999", "a 1 99999999999999999999", "offset 9999999999999999999"])
def test_a_number_that_kafka_does_not_have_is_no_reading(text: str) -> None:
    assert not any(one.offset > 2**63 or one.partition > 2**31 for one in readings(text))


def test_each_row_reads_its_example_and_the_runbook_has_it() -> None:
    runbook = (Path(__file__).parents[3] / "docs" / "runbook.md").read_text()
    for kind, _, example in FORMS:
        assert next(readings(example)).kind is kind
        assert f"`{example}`" in runbook, example
    assert {kind for kind, *_ in FORMS} == set(TypedKind)


NAMES = {
    "payments": "topic",
    "payments-0": "partition",
    "payments-1": "partition",
    "orders": "topic",
    "checkout-7": "transactional id",
    "checkout-8": "transactional id",
    "billing": "consumer group",
}
NEAR = {
    "paymnts": "payments",
    "paymetns": "payments",
    "payments-O": "payments-0",
    "payments-l": "payments-1",
    "Payments": "payments",
    "payments_1": "payments-1",
    "checkout 7": "checkout-7",
    "chekout-7": "checkout-7",
    "biling": "billing",
    "order": "orders",
    "checkout": "checkout-7",
}


@pytest.mark.parametrize(("text", "meant"), NEAR.items(), ids=NEAR.keys())
def test_the_nearest_name_is_the_first(text: str, meant: str) -> None:
    found = nearest(text, NAMES)
    assert found[0] == (meant, NAMES[meant])
    assert len(found) <= 3


@pytest.mark.parametrize("text", ["nobody-has-this", "x", "inventory", "7"])
def test_a_name_that_is_not_near_is_not_named(text: str) -> None:
    assert nearest(text, NAMES) == []


def test_a_name_differs_only_in_the_case_of_letters() -> None:
    assert same_but_for_case("PAYMENTS", ["payments", "Payments", "payment"]) == ["Payments", "payments"]
    assert same_but_for_case("paymnts", ["payments"]) == []


def test_a_text_that_is_too_long_to_be_mistyped_is_compared_with_nothing() -> None:
    long = "a" * 32_767
    assert nearest(long, {long[:-1]: "transactional id"}) == []
    assert nearest("payments-O", {long: "transactional id", "payments-0": "topic"}) == [("payments-0", "topic")]


_SIGNS = st.text("ab0", max_size=7)


@given(_SIGNS, _SIGNS, st.integers(1, 3))
def test_the_distance_is_that_of_the_whole_table_up_to_its_limit(one: str, other: str, most: int) -> None:
    table = {(row, 0): row for row in range(len(one) + 1)} | {(0, column): column for column in range(len(other) + 1)}
    for row, column in product(range(1, len(one) + 1), range(1, len(other) + 1)):
        costs = [
            table[row - 1, column] + 1,
            table[row, column - 1] + 1,
            table[row - 1, column - 1] + (one[row - 1] != other[column - 1]),
        ]
        if row > 1 and column > 1 and one[row - 2 : row] == other[column - 2 : column][::-1]:
            costs.append(table[row - 2, column - 2] + 1)
        table[row, column] = min(costs)
    assert distance(one, other, most) == min(table[len(one), len(other)], most + 1)
