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

from txnwatch.state.model.errors import CheckpointError, OtherVersionError
from txnwatch.streaming.job.checkpoint import check_files, last_cluster, last_offset
from txnwatch.streaming.source.offsets import VERSION, SourceOffset

OFFSET = replace(SourceOffset.beginning(), cluster_id="k5kq2g0z").to_json()


def checkpoint(directory: Path, offset: Any) -> str:
    (directory / "offsets").mkdir()
    for batch, cluster_id in (("9", "of an earlier batch"), ("10", OFFSET["cluster_id"])):
        text = json.dumps({**offset, "cluster_id": cluster_id} if "cluster_id" in offset else offset)
        (directory / "offsets" / batch).write_text(f"v1\n{{}}\n{text}")
    return str(directory)


def test_the_last_offset_has_it(tmp_path: Path) -> None:
    assert last_cluster(checkpoint(tmp_path, OFFSET)) == "k5kq2g0z"


def test_the_offset_of_another_version_has_it_too(tmp_path: Path) -> None:
    of_another = checkpoint(tmp_path, {"version": VERSION + 1, "cluster_id": "", "another": "format"})
    with pytest.raises(OtherVersionError):
        last_offset(of_another)
    assert last_cluster(of_another) == "k5kq2g0z"


def test_a_new_and_a_remote_checkpoint_have_none(tmp_path: Path) -> None:
    assert last_cluster(str(tmp_path)) is None
    assert last_cluster("s3a://bucket/checkpoint") is None


@pytest.mark.parametrize("offset", [[], {}, {"orders": {"0": 12}}, {"version": VERSION}])
def test_the_offset_of_another_program_is_refused(tmp_path: Path, offset: Any) -> None:
    with pytest.raises(CheckpointError) as info:
        last_cluster(checkpoint(tmp_path, offset))
    assert not isinstance(info.value, OtherVersionError)


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


@pytest.mark.parametrize("check", [check_files, last_cluster])
def test_a_checkpoint_of_another_user_is_an_error_that_names_the_file(
    tmp_path: Path, check: Callable[[str], object]
) -> None:
    found = checkpoint(tmp_path, OFFSET)
    expected = rf"{tmp_path}\S* cannot be read: Permission denied; the user of txnwatch must own the directory"
    with another_user(tmp_path), pytest.raises(CheckpointError, match=expected):
        check(found)


@pytest.mark.parametrize(("check", "file"), [(check_files, "metadata"), (last_cluster, "offsets/11")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, check: Callable[[str], object], file: str) -> None:
    found = checkpoint(tmp_path, OFFSET)
    (tmp_path / file).mkdir()
    with pytest.raises(CheckpointError, match=f"{tmp_path / file} cannot be read: Is a directory"):
        check(found)
