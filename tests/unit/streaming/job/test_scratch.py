"""The directory for temporary files: it ends with its owner, and no other directory is touched."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.job.scratch import SCRATCH, OwnDirectory

LONG_AGO = time.time() - 3600.0


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def old(directory: Path) -> Path:
    """The directory, as if nothing had been created in it for an hour."""
    os.utime(directory, (LONG_AGO, LONG_AGO))
    return directory


@contextlib.contextmanager
def own_directory() -> Iterator[Path]:
    directory = OwnDirectory(SCRATCH)
    yield directory.path
    directory.remove()


def test_it_is_removed_with_everything_in_it(parent: Path) -> None:
    with own_directory() as directory:
        (directory / "blockmgr-1").mkdir()
        (directory / "blockmgr-1" / "shuffle").write_text("x")
    assert list(parent.iterdir()) == []


def test_the_next_start_removes_that_of_a_process_that_died(parent: Path) -> None:
    abandoned = parent / "txnwatch-spark-dead"
    (abandoned / "blockmgr-1").mkdir(parents=True)
    old(abandoned)
    with own_directory() as directory:
        assert list(parent.iterdir()) == [directory]


def test_that_of_a_running_process_stays() -> None:
    with own_directory() as first:
        old(first)
        with own_directory() as second:
            assert first.is_dir()
            assert first != second


def test_new_directories_links_and_other_names_stay(parent: Path) -> None:
    (parent / "txnwatch-spark-new").mkdir()
    old_files = parent / "txnwatch-of-another-program"
    old_files.mkdir()
    (parent / "txnwatch-spark-link").symlink_to(old(old_files), target_is_directory=True)
    os.utime(parent / "txnwatch-spark-link", (LONG_AGO, LONG_AGO), follow_symlinks=False)
    with own_directory():
        pass
    assert {path.name for path in parent.iterdir()} == {
        "txnwatch-spark-new",
        "txnwatch-of-another-program",
        "txnwatch-spark-link",
    }


def test_a_place_that_takes_no_directory_is_an_error_that_names_the_variable(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(parent / "missing"))
    with pytest.raises(ConfigError, match="TMPDIR: expected a directory for temporary files"):
        OwnDirectory(SCRATCH)


def test_the_newest_of_those_that_died_can_stay_to_be_read(parent: Path) -> None:
    for number, name in enumerate(("c-oldest", "a-newest", "b-older")):
        directory = parent / f"kept-{name}"
        directory.mkdir()
        changed = LONG_AGO + {0: 0.0, 1: 20.0, 2: 10.0}[number]
        os.utime(directory, (changed, changed))
    own = OwnDirectory("kept-", keeps_last=True)
    assert set(parent.iterdir()) == {parent / "kept-a-newest", own.path}
