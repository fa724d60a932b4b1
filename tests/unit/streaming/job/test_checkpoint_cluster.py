"""The cluster of a checkpoint is known before Spark starts, also if another version wrote the checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from txnwatch.state.model.errors import CheckpointError
from txnwatch.streaming.job.checkpoint import check_files, last_cluster, last_offset
from txnwatch.streaming.source.offsets import VERSION, SourceOffset

OFFSET = replace(SourceOffset.beginning(), cluster_id="k5kq2g0z").to_json()


def checkpoint(directory: Path, offset: Any) -> Path:
    (directory / "offsets").mkdir()
    for batch, cluster_id in (("9", "of an earlier batch"), ("10", OFFSET["cluster_id"])):
        text = json.dumps({**offset, "cluster_id": cluster_id} if "cluster_id" in offset else offset)
        (directory / "offsets" / batch).write_text(f"v1\n{{}}\n{text}")
    return directory


def cluster(directory: Path, *, is_ours: bool = True) -> str | None:
    return last_cluster("the checkpoint", directory, is_ours=is_ours)


def files(directory: Path) -> None:
    check_files("the checkpoint", directory)


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_last_offset_has_it(tmp_path: Path, *, is_ours: bool) -> None:
    assert cluster(checkpoint(tmp_path, OFFSET), is_ours=is_ours) == "k5kq2g0z"


def test_the_offset_of_another_version_has_it_too(tmp_path: Path) -> None:
    of_another = checkpoint(tmp_path, {"version": VERSION + 1, "cluster_id": "", "another": "format"})
    with pytest.raises(CheckpointError, match="has version"):
        last_offset(of_another)
    assert cluster(of_another, is_ours=False) == "k5kq2g0z"


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_new_state_has_none(tmp_path: Path, *, is_ours: bool) -> None:
    assert cluster(tmp_path, is_ours=is_ours) is None


@pytest.mark.parametrize("offset", [[], {}, {"orders": {"0": 12}}, {"version": VERSION}])
def test_an_offset_that_this_version_has_not_written_is_refused_in_its_own_state_only(
    tmp_path: Path, offset: Any
) -> None:
    found = checkpoint(tmp_path, offset)
    assert not cluster(found, is_ours=False)
    with pytest.raises(CheckpointError):
        cluster(found)


@contextmanager
def another_user(directory: Path) -> Iterator[None]:
    """A user without a right on the directory; root gives up its own."""
    directory.chmod(0)
    user = os.geteuid()
    os.seteuid(65_534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)
        directory.chmod(0o700)


@pytest.mark.parametrize("check", [files, cluster])
def test_a_checkpoint_of_another_user_is_an_error_that_names_the_file(
    tmp_path: Path, check: Callable[[Path], object]
) -> None:
    found = checkpoint(tmp_path, OFFSET)
    expected = rf"{tmp_path}\S* cannot be read: Permission denied; the user of txnwatch must own the directory"
    with another_user(tmp_path), pytest.raises(CheckpointError, match=expected):
        check(found)


@pytest.mark.parametrize(("check", "file"), [(files, "metadata"), (cluster, "offsets/11")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, check: Callable[[Path], object], file: str) -> None:
    found = checkpoint(tmp_path, OFFSET)
    (tmp_path / file).mkdir()
    with pytest.raises(CheckpointError, match=f"{tmp_path / file} cannot be read: Is a directory"):
        check(found)
