"""The positions of a former state, also of another version, and their text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.kept_checkpoint import KeptCheckpoint
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.text import read_json
from txnwatch.streaming.source.driver_file import FormerPosition, positions_from, positions_in, positions_text
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("orders-eu", 12)
LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
POSITIONS = {ORDERS: FormerPosition("Zm9v", 41), OTHER: FormerPosition("YmFy", None)}


def test_the_positions_of_data_are_those_of_an_offset() -> None:
    read = {ORDERS: Position("Zm9v", 41, 3, 50, 1), OTHER: NotBegun("YmFy"), LOG: Position("TG9n", 7, 3, 7, 1)}
    assert positions_in(SourceOffset("c", 5, 1, 1, read).to_json()) == POSITIONS


@pytest.mark.parametrize("version", [0, 99, None])
def test_the_version_does_not_matter(version: int | None) -> None:
    raw = SourceOffset("c", 5, 1, 1, {ORDERS: Position("Zm9v", 41, 3, 50, 1)}).to_json()
    assert positions_in({**raw, "version": version, "unknown": 1}) == {ORDERS: FormerPosition("Zm9v", 41)}


def test_a_checkpoint_that_an_earlier_version_wrote_has_positions(tmp_path: Path) -> None:
    kept = KeptCheckpoint("70a1756", tmp_path)
    newest = max((kept.state / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    raw = read_json((kept.state / "offsets" / newest.name).read_text().splitlines()[2])
    found = positions_in(raw)
    assert {partition.topic for partition in found} == set(raw["topics"]) - {TRANSACTION_STATE_TOPIC}
    assert any(at.offset for at in found.values())


@pytest.mark.parametrize(
    "topics",
    [
        None,
        [],
        {"orders": None},
        {"orders": {"id": "Zm9v"}},
        {"orders": {"partitions": {"0": [4]}}},
        {"orders": {"id": "Zm9v", "partitions": {"zero": [4]}}},
        {"orders": {"id": "Zm9v", "partitions": {"0": []}}},
        {"orders": {"id": "Zm9v", "partitions": {"0": {}}}},
        {"orders": {"id": "Zm9v", "partitions": {"0": [-4]}}},
        {"orders": {"id": "Zm9v", "partitions": {"0": ["4"]}}},
        {"orders": {"id": "Zm9v", "partitions": {"0": [True]}}},
        {"orders": {"id": 7, "partitions": {"0": [4]}}},
    ],
)
def test_what_is_no_position_is_an_error(topics: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        positions_in({"topics": topics})


def test_no_topics_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected positions by topic and partition"):
        positions_in({})


def test_positions_are_read_as_they_were_written() -> None:
    assert positions_from(positions_text(POSITIONS)) == POSITIONS
    assert positions_from(positions_text({})) == {}
    assert positions_from(positions_text(None)) is None


@pytest.mark.parametrize("text", ["", "[", '[["orders-0", "Zm9v"]]', '[["orders", "Zm9v", 5]]', '{"a": 1}', "\xff"])
def test_a_damaged_text_has_no_positions(text: str) -> None:
    assert positions_from(text.encode("latin-1")) is None


def test_a_checkpoint_without_data_has_read_nothing() -> None:
    assert positions_in({"topics": {LOG.topic: {"id": "a", "partitions": {}}}}) == {}
