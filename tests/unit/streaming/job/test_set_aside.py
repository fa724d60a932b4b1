"""A checkpoint of another version is moved aside; a move that ends at any moment is completed by the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.local_hadoop import Files, a_checkpoint, session
from txnwatch.state.model.errors import CheckpointError
from txnwatch.streaming.job.checkpoint import check_files
from txnwatch.streaming.job.set_aside import PREVIOUS, complete_move, set_aside


def kept(directory: Path) -> set[str]:
    return {path.name for path in (directory / PREVIOUS).iterdir()}


def test_sparks_files_are_moved_and_those_of_txnwatch_stay(tmp_path: Path) -> None:
    directory = a_checkpoint(tmp_path, "old")
    assert not complete_move(session(Files()), str(directory))
    assert set_aside(session(Files()), str(directory), "c") == str(directory / PREVIOUS)
    assert {path.name for path in directory.iterdir()} == {PREVIOUS, "txnwatch-evidence.jsonl", ".txnwatch-lock"}
    assert kept(directory) == {"commits", "offsets", "state", "metadata"}
    assert complete_move(session(Files()), str(directory)), "it replaces an earlier one"


@pytest.mark.parametrize(("known", "is_moved"), [("c", True), ("", True), ("another", False)])
def test_a_checkpoint_of_another_cluster_stays_where_it_is(tmp_path: Path, known: str, *, is_moved: bool) -> None:
    directory = a_checkpoint(tmp_path, "old")
    (directory / "offsets" / "7").write_text(f'v1\n{{}}\n{{"cluster_id": "{known}"}}')
    if is_moved:
        set_aside(session(Files()), str(directory), "c")
    else:
        with pytest.raises(
            CheckpointError, match="was written for cluster another, but the brokers answer for cluster c"
        ):
            set_aside(session(Files()), str(directory), "c")
    assert (directory / "state").exists() is not is_moved


def test_only_the_last_one_is_kept(tmp_path: Path) -> None:
    for name in ("older", "old"):
        set_aside(session(Files()), str(a_checkpoint(tmp_path, name)), "c")
    assert (tmp_path / PREVIOUS / "state" / "0").read_text() == "old"


@pytest.mark.parametrize("left", range(7))
def test_a_move_that_was_interrupted_is_completed_by_the_next_start(tmp_path: Path, left: int) -> None:
    set_aside(session(Files()), str(a_checkpoint(tmp_path, "older")), "c")
    directory = a_checkpoint(tmp_path, "old")
    with pytest.raises(CheckpointError, match="is of another version and has to be moved aside: the process ends here"):
        set_aside(session(Files(left)), str(directory), "c")
    check_files(str(directory))  # the next start does not take it for a damaged checkpoint
    if left > 0:
        assert complete_move(session(Files()), str(directory))
    else:
        set_aside(session(Files()), str(directory), "c")  # nothing was moved: the state is read, and refused, again
    assert kept(directory) == {"commits", "offsets", "state", "metadata"}
    assert (directory / PREVIOUS / "state" / "0").read_text() == "old"
    assert not [path for path in directory.iterdir() if path.name in kept(directory)]


class Refuses(Files):
    def rename(self, path: str, to: str) -> bool:  # noqa: ARG002 - as in Hadoop
        return False


def test_a_file_system_that_moves_nothing_is_one_clear_line(tmp_path: Path) -> None:
    directory = a_checkpoint(tmp_path, "old")
    with pytest.raises(CheckpointError, match="has to be moved aside: commits cannot be moved"):
        set_aside(session(Refuses()), str(directory), "c")
