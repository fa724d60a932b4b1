"""The positions that a state continues reach the source, and what was read before is not reported again."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.app import SourceLink
from txnwatch.state.model.errors import QueryError
from txnwatch.state.model.facts import Joined
from txnwatch.state.model.findings import StrayWrite
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.job.state_directory import Former
from txnwatch.streaming.source.driver_file import FormerPosition, read_driver_file

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
POSITIONS = {ORDERS: FormerPosition("Zm9v", 30), PAYMENTS: FormerPosition("YmFy", None)}


def begun(file: Path, former: Former | None) -> SourceLink:
    link = SourceLink(file)
    link.begin(former)
    return link


@pytest.mark.parametrize(
    ("former", "is_rebuilt", "positions"),
    [(None, False, None), (Former(None), True, None), (Former({}), True, {}), (Former(POSITIONS), True, POSITIONS)],
    ids=["nothing", "a state whose end is not known", "a state without data", "a state"],
)
def test_the_source_gets_what_the_state_continues(
    tmp_path: Path, former: Former | None, positions: object, *, is_rebuilt: bool
) -> None:
    file = tmp_path / "driver.json"
    file.write_text("of an earlier start")
    assert begun(file, former).is_rebuilt is is_rebuilt
    assert read_driver_file(str(file)).former_positions == positions


def test_a_disk_that_takes_no_file_is_an_error_that_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "driver.json"
    file.mkdir()
    with pytest.raises(QueryError, match=f"{file} cannot be written: Is a directory"):
        begun(file, None)


def a_stray_write(partition: TopicPartition, offset: int | None, topic_id: str = "Zm9v") -> StrayWrite:
    return StrayWrite(7, partition, topic_id, Joined(2, 1, offset, 2), None, None, 1)


@pytest.mark.parametrize(
    ("stray", "is_new"),
    [
        (a_stray_write(ORDERS, 29), False),
        (a_stray_write(ORDERS, 30), True),
        (a_stray_write(ORDERS, None), True),
        (a_stray_write(ORDERS, 29, "of a new topic"), True),
        (a_stray_write(PAYMENTS, 29, "YmFy"), True),
        (a_stray_write(TopicPartition("new", 0), 29), True),
    ],
    ids=["read before", "read now", "proven by two barriers", "a new topic", "not begun before", "a new partition"],
)
def test_a_stray_write_that_the_former_query_has_read_is_not_reported_again(
    tmp_path: Path, stray: StrayWrite, *, is_new: bool
) -> None:
    file = tmp_path / "driver.json"
    assert begun(file, None).unreported([stray]) == [stray]
    assert begun(file, Former(None)).unreported([stray]) == [stray]
    assert begun(file, Former(POSITIONS)).unreported([stray]) == [stray] * is_new
