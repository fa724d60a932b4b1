"""A checkpoint of another version is moved aside; a move that ends at any moment is completed by the next start."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from txnwatch.state.model.errors import CheckpointError
from txnwatch.streaming.job.checkpoint import check_files
from txnwatch.streaming.job.set_aside import PREVIOUS, complete_move, set_aside

OFFSETS, COMMITS = "v1\n{}\n{}", "v1\n{}"


class Files:
    """Hadoop's file system as far as it is used, on a local directory; `left` calls change it, the next one fails."""

    def __init__(self, left: int = 1_000) -> None:
        self.left = left

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Py4JError("the process ends here")

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def mkdirs(self, path: str) -> bool:
        self._change()
        Path(path).mkdir(parents=True, exist_ok=True)
        return True

    def delete(self, path: str, _: bool) -> bool:  # noqa: FBT001 - as in Hadoop
        self._change()
        shutil.rmtree(path, ignore_errors=True)
        return True

    def rename(self, path: str, to: str) -> bool:
        self._change()
        assert not Path(to).exists(), "Hadoop would move it into the directory"
        Path(path).rename(to)
        return True


class Refuses(Files):
    def rename(self, path: str, to: str) -> bool:  # noqa: ARG002 - as in Hadoop
        return False


def session(files: Files) -> Any:
    """A session whose JVM has this file system; a path of Hadoop is a text here."""

    class HadoopPath(str):
        __slots__ = ()

        def getFileSystem(self, _: object) -> Files:  # noqa: N802 - Hadoop's name
            return files

    jvm = SimpleNamespace()
    jvm.org = jvm.apache = jvm.hadoop = jvm.fs = jvm
    jvm.Path = HadoopPath
    state = SimpleNamespace(newHadoopConf=lambda: None)
    return SimpleNamespace(
        sparkContext=SimpleNamespace(_jvm=jvm), _jsparkSession=SimpleNamespace(sessionState=lambda: state)
    )


def a_checkpoint(directory: Path, name: str) -> Path:
    for part, file, text in (("commits", "7", COMMITS), ("offsets", "7", OFFSETS), ("state", "0", name)):
        (directory / part).mkdir(parents=True)
        (directory / part / file).write_text(text)
    (directory / "metadata").write_text('{"id": "7"}')
    (directory / "txnwatch-evidence.jsonl").write_text("[]\n")
    (directory / ".txnwatch-lock").touch()
    return directory


def kept(directory: Path) -> set[str]:
    return {path.name for path in (directory / PREVIOUS).iterdir()}


def test_sparks_files_are_moved_and_those_of_txnwatch_stay(tmp_path: Path) -> None:
    directory = a_checkpoint(tmp_path, "old")
    assert not complete_move(session(Files()), str(directory))
    assert set_aside(session(Files()), str(directory)) == str(directory / PREVIOUS)
    assert {path.name for path in directory.iterdir()} == {PREVIOUS, "txnwatch-evidence.jsonl", ".txnwatch-lock"}
    assert kept(directory) == {"commits", "offsets", "state", "metadata"}
    assert complete_move(session(Files()), str(directory)), "it replaces an earlier one"


def test_only_the_last_one_is_kept(tmp_path: Path) -> None:
    for name in ("older", "old"):
        set_aside(session(Files()), str(a_checkpoint(tmp_path, name)))
    assert (tmp_path / PREVIOUS / "state" / "0").read_text() == "old"


@pytest.mark.parametrize("left", range(7))
def test_a_move_that_was_interrupted_is_completed_by_the_next_start(tmp_path: Path, left: int) -> None:
    set_aside(session(Files()), str(a_checkpoint(tmp_path, "older")))
    directory = a_checkpoint(tmp_path, "old")
    with pytest.raises(CheckpointError, match="is of another version and has to be moved aside: the process ends here"):
        set_aside(session(Files(left)), str(directory))
    check_files(str(directory))  # the next start does not take it for a damaged checkpoint
    if left > 0:
        assert complete_move(session(Files()), str(directory))
    else:
        set_aside(session(Files()), str(directory))  # nothing was moved: the state is read, and refused, again
    assert kept(directory) == {"commits", "offsets", "state", "metadata"}
    assert (directory / PREVIOUS / "state" / "0").read_text() == "old"
    assert not [path for path in directory.iterdir() if path.name in kept(directory)]


def test_a_file_system_that_moves_nothing_is_one_clear_line(tmp_path: Path) -> None:
    directory = a_checkpoint(tmp_path, "old")
    with pytest.raises(CheckpointError, match="has to be moved aside: commits cannot be moved"):
        set_aside(session(Refuses()), str(directory))
