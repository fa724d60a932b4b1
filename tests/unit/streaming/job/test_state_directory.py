"""Each version has its own directory in a checkpoint, which has one state at a time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from support.local_hadoop import Files, a_state, session
from support.log_lines import LogLines
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.values import CoordinatorAccess, TopicPartition
from txnwatch.streaming.job import state_directory
from txnwatch.streaming.job.state_directory import StateDirectories, check_local_states, state_name
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset

ORDERS, PAYMENTS, NEW = (TopicPartition(name, 0) for name in ("orders", "payments", "new"))
OWN, OLD, OLDER = "state-00000000", "state-0000000a", "state-0000000b"


def offset(
    at: dict[TopicPartition, tuple[str, int | None]], listed_ms: int, cluster_id: str = "c"
) -> dict[str, object]:
    positions = {
        partition: NotBegun(topic_id) if read_to is None else Position(topic_id, read_to, 3, 50, 1)
        for partition, (topic_id, read_to) in at.items()
    }
    return SourceOffset(cluster_id, 5, listed_ms, listed_ms, positions).to_json()


def written(root: Path, name: str, raw: object, *, is_committed: bool = True) -> Path:
    """A state whose batch 7 ends at this offset."""
    directory = a_state(root / name, name)
    (directory / "offsets" / "7").write_text(raw if isinstance(raw, str) else f"v1\n{{}}\n{json.dumps(raw)}")
    if not is_committed:
        (directory / "commits" / "7").unlink()
    return directory


class Start:
    """One start of the version whose directory is `OWN`."""

    def __init__(self, root: Path, files: Files | None = None, cluster_id: str = "c") -> None:
        self.log = LogLines()
        self.is_rebuilt = StateDirectories(session(files or Files()), str(root), OWN, self.log).begin(cluster_id)
        self.states = {path.name for path in root.iterdir()} if root.exists() else set()


def test_the_first_start_of_all_replaces_nothing(tmp_path: Path) -> None:
    start = Start(tmp_path / "new")
    assert (start.is_rebuilt, start.log, start.states) == (False, [], set())


def test_the_states_of_other_versions_are_removed_before_the_query_begins(tmp_path: Path) -> None:
    written(tmp_path, OLD, offset({ORDERS: ("Zm9v", 30)}, 1))
    written(tmp_path, OLDER, offset({ORDERS: ("Zm9v", 20)}, 0))
    (tmp_path / "state-of-another-kind").mkdir()
    start = Start(tmp_path)
    assert (start.is_rebuilt, start.states) == (True, {OWN, "state-of-another-kind"})
    (line,) = start.log
    assert line == (
        f"warning: the checkpoint has no {OWN}, the state of this version, view of the coordinators and number of "
        "state partitions: the state is rebuilt from the logs, and data is read from the last stable offsets"
    )


def test_a_start_that_repeats_says_nothing_again_and_begins_in_the_same_way(tmp_path: Path) -> None:
    written(tmp_path, OLD, offset({ORDERS: ("Zm9v", 30)}, 1))
    Start(tmp_path)
    again = Start(tmp_path)
    assert (again.is_rebuilt, again.log, again.states) == (True, [], {OWN})


def test_an_earlier_version_that_is_started_again_begins_anew(tmp_path: Path) -> None:
    a_state(tmp_path / OWN, "own")
    newer = StateDirectories(session(Files()), str(tmp_path), OLD, LogLines())
    assert newer.begin("c")
    written(tmp_path, OLD, offset({ORDERS: ("Zm9v", 30)}, 1))
    start = Start(tmp_path)
    assert (start.is_rebuilt, start.states) == (True, {OWN})
    assert not (tmp_path / OWN / "state").exists(), "its old positions would be read and reported again"


def test_a_state_that_cannot_be_deleted_is_one_line(tmp_path: Path) -> None:
    written(tmp_path, OLD, offset({ORDERS: ("Zm9v", 30)}, 1))
    start = Start(tmp_path, Files(left=0))
    assert start.is_rebuilt
    assert f"warning: {OLD} in the checkpoint is no longer needed, and is not deleted: the" in start.log[1]


DAMAGED = ("", "v1", "v1\n{}\n{", "v1\n{}\n[]", 'v1\n{}\n{"topics": 5}')


@pytest.mark.parametrize("text", DAMAGED)
def test_damage_in_another_state_is_no_reason_not_to_start(tmp_path: Path, text: str) -> None:
    written(tmp_path, OLD, text)
    start = Start(tmp_path)
    assert (start.is_rebuilt, start.states) == (True, {OWN})


class Fails(Files):
    """A file system that opens no file."""

    def __init__(self, error: str) -> None:
        super().__init__()
        self.error = error

    def open(self, path: str) -> None:
        raise Py4JError(f"{self.error}: {path}")


@pytest.mark.parametrize("error", ["java.io.FileNotFoundException", "org.apache.hadoop.fs.ChecksumException"])
def test_a_file_that_is_missing_or_damaged_does_not_end_the_watch(tmp_path: Path, error: str) -> None:
    written(tmp_path, OLD, offset({ORDERS: ("Zm9v", 30)}, 1))
    assert Start(tmp_path, Fails(error)).is_rebuilt


def test_a_file_system_that_may_answer_later_is_asked_again(tmp_path: Path) -> None:
    written(tmp_path, OLD, offset({ORDERS: ("Zm9v", 30)}, 1))
    refused = Fails("java.net.ConnectException: Connection refused")
    with pytest.raises(Py4JError, match="Connection refused"):
        Start(tmp_path, refused)
    assert (tmp_path / OLD).exists()


@pytest.mark.parametrize(("known", "is_refused"), [("c", False), ("", False), ("another", True)])
def test_a_checkpoint_of_another_cluster_is_refused_and_nothing_is_deleted(
    tmp_path: Path, known: str, *, is_refused: bool
) -> None:
    for name in (OLD, OLDER):
        written(tmp_path, name, offset({}, 1, known))
    expected = "was written for cluster another, but the brokers answer for cluster c"
    if not is_refused:
        check_local_states(str(tmp_path), OWN, "c")
        Start(tmp_path)
        return
    with pytest.raises(CheckpointError, match=expected):
        check_local_states(str(tmp_path), OWN, "c")
    with pytest.raises(CheckpointError, match=expected):
        Start(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {OLD, OLDER}


def test_the_checkpoint_of_another_program_is_refused(tmp_path: Path) -> None:
    a_state(tmp_path, "of another program")
    for start in (lambda: check_local_states(str(tmp_path), OWN, "c"), lambda: Start(tmp_path)):
        with pytest.raises(CheckpointError, match="expected a directory of txnwatch's own, found the checkpoint of"):
            start()


def test_the_checkpoint_of_an_early_build_is_not_called_that_of_another_program(tmp_path: Path) -> None:
    written(tmp_path, "", offset({ORDERS: ("Zm9v", 30)}, 1))
    for start in (lambda: check_local_states(str(tmp_path), OWN, "c"), lambda: Start(tmp_path)):
        with pytest.raises(CheckpointError, match=r"found the state of an early build of txnwatch, .* a new directory"):
            start()


def test_damage_in_the_state_of_another_version_is_no_reason_to_refuse_a_start(tmp_path: Path) -> None:
    written(tmp_path, OLD, "v1\n{}\ndamaged")
    (tmp_path / OLD / "metadata").unlink()
    check_local_states(str(tmp_path), OWN, "c")
    written(tmp_path, OWN, "v1\n{}\ndamaged")
    with pytest.raises(CheckpointError, match=r"expected txnwatch's offsets in .*, found something else"):
        check_local_states(str(tmp_path), OWN, "c")
    (tmp_path / OWN / "metadata").unlink()
    with pytest.raises(CheckpointError, match=f"expected {tmp_path / OWN / 'metadata'}, found none: restore the whole"):
        check_local_states(str(tmp_path), OWN, "c")


def test_a_remote_and_a_new_checkpoint_are_not_checked_before_spark_starts(tmp_path: Path) -> None:
    check_local_states("s3a://bucket/checkpoint", OWN, "c")
    check_local_states(str(tmp_path / "new"), OWN, "c")


def test_the_name_is_that_of_everything_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {state_name(access) for access in CoordinatorAccess}
    assert len(names) == len(CoordinatorAccess), "the state of one view is of no use to another"
    own = state_name(CoordinatorAccess.LOG)
    assert own == state_name(CoordinatorAccess.LOG)
    assert re.fullmatch("state-[0-9a-f]{8}", own)
    names.add(state_name(CoordinatorAccess.LOG, 2))
    monkeypatch.setattr(state_directory, "VERSION", 0)
    names.add(state_name(CoordinatorAccess.LOG))
    monkeypatch.setattr(state_directory, "OFFSET_TYPES", ())
    names.add(state_name(CoordinatorAccess.LOG))
    monkeypatch.setattr(state_directory, "STATE_VARIABLES", ())
    names.add(state_name(CoordinatorAccess.LOG))
    monkeypatch.setattr(state_directory.HEADS, "version", "0")
    names.add(state_name(CoordinatorAccess.LOG))
    monkeypatch.setattr(state_directory.pyspark, "__version__", "0")
    names.add(state_name(CoordinatorAccess.LOG))
    assert len(names) == len(CoordinatorAccess) + 6
