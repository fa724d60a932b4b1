"""The positions of the checkpoint that was replaced are written for the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from support.local_hadoop import Files, a_checkpoint, session
from txnwatch.state.model.errors import QueryError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.job.replaced_checkpoint import FormerPositionsError, replaces_another
from txnwatch.streaming.job.set_aside import PREVIOUS, set_aside
from txnwatch.streaming.source.former_positions import FormerPosition, read_former_positions
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.watch.rebuilding import is_rebuilt

ORDERS = TopicPartition("orders", 0)


class NotReached(Files):
    def open(self, path: str) -> None:
        raise Py4JError(f"{path}: Connection refused")


class Lines(list[str]):
    """The log."""

    def info(self, message: str) -> None:
        raise AssertionError(message)

    def warning(self, message: str) -> None:
        self.append(message)


def spark_file(offset: int) -> str:
    raw = SourceOffset("c", 5, 1, 1, {ORDERS: Position("Zm9v", offset, 3, 50, 1)}).to_json()
    return f"v1\n{{}}\n{json.dumps(raw)}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint whose batch 7 is committed, and whose batch 8 is planned."""
    directory = a_checkpoint(tmp_path / "checkpoint", "old")
    for batch, offset in (("6", 20), ("7", 30), ("8", 40)):
        (directory / "offsets" / batch).write_text(spark_file(offset))
    (directory / "commits" / "6").write_text("v1\n{}")
    (directory / "commits" / ".7.crc").write_bytes(b"crc")
    return directory


def replaced(directory: Path, files: Files | None = None) -> bool:
    return replaces_another(session(files or Files()), str(directory), directory / "positions")


def test_a_checkpoint_that_replaces_nothing_has_no_positions(directory: Path) -> None:
    assert not replaced(directory)
    assert not (directory / "positions").exists()


def test_reading_continues_behind_the_last_micro_batch_that_was_committed(directory: Path) -> None:
    set_aside(session(Files()), str(directory))
    assert replaced(directory)
    assert read_former_positions(directory / "positions") == {ORDERS: FormerPosition("Zm9v", 30)}


def test_a_replaced_checkpoint_that_committed_nothing_keeps_the_positions_before_it(directory: Path) -> None:
    set_aside(session(Files()), str(directory))
    assert replaced(directory)
    second = a_checkpoint(directory, "newer")
    (second / "commits" / "7").unlink()
    set_aside(session(Files()), str(second))
    assert replaced(directory)
    assert read_former_positions(directory / "positions") == {ORDERS: FormerPosition("Zm9v", 30)}
    (directory / PREVIOUS / "commits").rmdir()
    assert replaced(directory)


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}\n{", "v1\n{}\n[]", 'v1\n{}\n{"topics": 5}'])
def test_positions_that_cannot_be_read_are_reported_and_the_start_goes_on(directory: Path, text: str) -> None:
    set_aside(session(Files()), str(directory))
    (directory / PREVIOUS / "offsets" / "7").write_text(text)
    with pytest.raises(FormerPositionsError):
        replaced(directory)
    (directory / "positions").write_text("of an earlier upgrade")
    log = Lines()
    assert is_rebuilt(session(Files()), str(directory), directory / "positions", log)
    (line,) = log
    assert line.startswith("the positions of the replaced checkpoint cannot be read: ")
    assert not (directory / "positions").exists()


def test_errors_of_a_disk_and_of_a_file_system_are_those_of_a_start_that_can_be_repeated(directory: Path) -> None:
    set_aside(session(Files()), str(directory))
    with pytest.raises(QueryError, match="positions cannot be written: No such file or directory"):
        replaces_another(session(Files()), str(directory), directory / "nowhere" / "positions")
    with pytest.raises(Py4JError, match="offsets/7: Connection refused"):
        replaced(directory, NotReached())


def test_the_log_has_no_line_if_all_is_well(directory: Path) -> None:
    log = Lines()
    assert not is_rebuilt(session(Files()), str(directory), directory / "positions", log)
    set_aside(session(Files()), str(directory))
    assert is_rebuilt(session(Files()), str(directory), directory / "positions", log)
    assert log == []
