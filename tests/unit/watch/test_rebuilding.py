"""The positions of the replaced checkpoint reach the source, and what was read before is not reported again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from support.local_hadoop import Files, a_checkpoint, session
from support.log_lines import LogLines
from txnwatch.state.model.facts import Joined
from txnwatch.state.model.findings import StrayWrite
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.job.set_aside import PREVIOUS, set_aside
from txnwatch.streaming.source.driver_files import FormerPosition, read_former_positions
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.watch.source_link import Rebuilding

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
UNKNOWN = "warning: the positions of the replaced checkpoint are not known: "


class Fails(Files):
    """A file system that opens no file."""

    def __init__(self, error: str) -> None:
        super().__init__()
        self.error = error

    def open(self, path: str) -> None:
        raise Py4JError(f"{self.error}: {path}")


def spark_file(offset: int) -> str:
    raw = SourceOffset("c", 5, 1, 1, {ORDERS: Position("Zm9v", offset, 3, 50, 1)}).to_json()
    return f"v1\n{{}}\n{json.dumps(raw)}"


def written(directory: Path, *offsets: tuple[str, int]) -> Path:
    """A checkpoint whose batch 7 is committed, with these offsets by batch."""
    a_checkpoint(directory, "state")
    for batch, offset in offsets:
        (directory / "offsets" / batch).write_text(spark_file(offset))
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A checkpoint whose batch 7 is the last one committed, and whose batch 8 is planned."""
    directory = written(tmp_path / "checkpoint", ("6", 20), ("7", 30), ("8", 40))
    (directory / "commits" / "6").write_text("v1\n{}")
    (directory / "commits" / ".7.crc").write_bytes(b"crc")
    return directory


def moved(directory: Path) -> None:
    assert set_aside(session(Files()), str(directory), "c") == str(directory / PREVIOUS)


class Looked:
    """One start of the query."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.log = LogLines()
        self.rebuilding = Rebuilding(self.log)
        self.file = directory / "positions"
        self.rebuilding.look(session(files or Files()), str(directory), self.file)

    @property
    def positions(self) -> dict[TopicPartition, FormerPosition] | None:
        return read_former_positions(self.file)


def test_a_checkpoint_that_replaces_nothing_has_no_positions(directory: Path) -> None:
    looked = Looked(directory)
    assert not looked.rebuilding.is_rebuilt
    assert (looked.positions, looked.log) == (None, [])


def test_reading_continues_behind_the_last_micro_batch_that_was_committed(directory: Path) -> None:
    moved(directory)
    looked = Looked(directory)
    assert looked.rebuilding.is_rebuilt
    assert (looked.positions, looked.log) == ({ORDERS: FormerPosition("Zm9v", 30)}, [])


def test_a_checkpoint_that_committed_nothing_does_not_replace_the_one_before(directory: Path) -> None:
    moved(directory)
    for is_there in (True, False):  # Spark creates the directory when the query starts
        newer = written(directory, ("0", 99))
        (newer / "commits" / "7").unlink()
        if not is_there:
            (newer / "commits").rmdir()
        moved(newer)
        assert not any((directory / part).exists() for part in ("commits", "offsets", "state", "metadata"))
        assert Looked(directory).positions == {ORDERS: FormerPosition("Zm9v", 30)}


DAMAGED = ("", "v1", "v1\n{}\n{", "v1\n{}\n[]", 'v1\n{}\n{"topics": 5}')


@pytest.mark.parametrize("text", DAMAGED)
def test_positions_that_cannot_be_read_are_reported_and_the_start_goes_on(directory: Path, text: str) -> None:
    moved(directory)
    (directory / PREVIOUS / "offsets" / "7").write_text(text)
    (directory / "positions").write_text("of an earlier upgrade")
    looked = Looked(directory)
    assert looked.rebuilding.is_rebuilt
    (line,) = looked.log
    assert line.startswith(f"{UNKNOWN}offsets/7: expected")
    assert looked.positions is None


@pytest.mark.parametrize("error", ["java.io.FileNotFoundException", "org.apache.hadoop.fs.ChecksumException"])
def test_a_file_that_is_missing_or_damaged_does_not_end_the_watch(directory: Path, error: str) -> None:
    moved(directory)
    (line,) = Looked(directory, Fails(error)).log
    assert line.startswith(f"{UNKNOWN}{error.rpartition('.')[2]}: ")


def test_nor_does_a_replaced_checkpoint_without_a_committed_micro_batch(directory: Path) -> None:
    (directory / "commits" / "6").unlink()
    (directory / "commits" / "7").unlink()
    moved(directory)
    (line,) = Looked(directory).log
    assert line.startswith(f"{UNKNOWN}no micro-batch of it was committed")


def test_nor_does_a_disk_that_takes_no_file(directory: Path) -> None:
    moved(directory)
    (directory / "positions").mkdir()
    looked = Looked(directory)
    (line,) = looked.log
    assert line.startswith(f"{UNKNOWN}[Errno 21] Is a directory")
    assert looked.rebuilding.unreported([a_stray_write(ORDERS, 5)])


def test_a_file_system_that_may_answer_later_is_asked_again(directory: Path) -> None:
    moved(directory)
    with pytest.raises(Py4JError, match="Connection refused"):
        Looked(directory, Fails("java.net.ConnectException: Connection refused"))


def test_once_a_micro_batch_is_committed_the_replaced_checkpoint_is_not_needed(directory: Path) -> None:
    moved(directory)
    written(directory, ("7", 70))
    assert Looked(directory).positions == {ORDERS: FormerPosition("Zm9v", 30)}, "a remote checkpoint has no such file"
    (directory / PREVIOUS / "offsets" / "7").unlink()
    kept = Looked(directory)
    assert (kept.positions, kept.log) == ({ORDERS: FormerPosition("Zm9v", 30)}, [])
    kept.file.unlink()
    assert Looked(directory, Fails("java.io.FileNotFoundException")).log == []


def a_stray_write(partition: TopicPartition, offset: int | None, topic_id: str = "Zm9v") -> StrayWrite:
    return StrayWrite(7, partition, topic_id, Joined(2, 1, offset, 2), None, None, 1)


@pytest.mark.parametrize(
    ("stray", "is_new"),
    [
        (a_stray_write(ORDERS, 29), False),
        (a_stray_write(ORDERS, 30), True),
        (a_stray_write(ORDERS, None), True),
        (a_stray_write(ORDERS, 29, "of a new topic"), True),
        (a_stray_write(PAYMENTS, 29), True),
    ],
    ids=["read before", "read now", "proven by two barriers", "a new topic", "a new partition"],
)
def test_a_stray_write_that_the_former_query_has_read_is_not_reported_again(
    directory: Path, stray: StrayWrite, *, is_new: bool
) -> None:
    assert Looked(directory).rebuilding.unreported([stray]) == [stray]
    moved(directory)
    assert Looked(directory).rebuilding.unreported([stray]) == [stray] * is_new
