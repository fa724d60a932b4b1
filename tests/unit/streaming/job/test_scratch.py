"""The directory for temporary files: it ends with its owner, and no other directory is touched."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.job.scratch import scratch_directory

LONG_AGO = time.time() - 3600.0


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def old(directory: Path) -> Path:
    """The directory, as if nothing had been created in it for an hour."""
    os.utime(directory, (LONG_AGO, LONG_AGO))
    return directory


def test_it_is_removed_with_everything_in_it(parent: Path) -> None:
    with scratch_directory() as directory:
        (directory / "blockmgr-1").mkdir()
        (directory / "blockmgr-1" / "shuffle").write_text("x")
    assert list(parent.iterdir()) == []


def test_the_next_start_removes_that_of_a_process_that_died(parent: Path) -> None:
    abandoned = parent / "txnwatch-spark-dead"
    (abandoned / "blockmgr-1").mkdir(parents=True)
    old(abandoned)
    with scratch_directory() as directory:
        assert list(parent.iterdir()) == [directory]


def test_that_of_a_running_process_stays() -> None:
    with scratch_directory() as first:
        old(first)
        with scratch_directory() as second:
            assert first.is_dir()
            assert first != second


def test_new_directories_links_and_other_names_stay(parent: Path) -> None:
    (parent / "txnwatch-spark-new").mkdir()
    old_files = parent / "txnwatch-of-another-program"
    old_files.mkdir()
    (parent / "txnwatch-spark-link").symlink_to(old(old_files), target_is_directory=True)
    os.utime(parent / "txnwatch-spark-link", (LONG_AGO, LONG_AGO), follow_symlinks=False)
    with scratch_directory():
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
    with pytest.raises(ConfigError, match="TMPDIR: expected a directory for temporary files"), scratch_directory():
        pass
