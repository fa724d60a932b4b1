"""The lock of a checkpoint: one driver at a time, and a killed driver leaves none behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from txnwatch.state.model.errors import CheckpointError
from txnwatch.streaming.job.checkpoint import locked

HOLD = """
import sys, time
from txnwatch.streaming.job.checkpoint import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_a_second_driver_ends_with_the_process_that_holds_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "new")
    for _ in range(2):  # the first refusal must not hide the holder from the second one
        with subprocess.Popen([sys.executable, "-c", HOLD, checkpoint], stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            for _ in range(2):
                with (
                    pytest.raises(CheckpointError, match=f"is in use by process {holder.pid}: one"),
                    locked(checkpoint),
                ):
                    pass
            holder.kill()


def test_a_checkpoint_can_be_locked_again_after_its_driver_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(f"file://{tmp_path}"):
            assert (tmp_path / ".txnwatch-holder").read_text() == str(os.getpid())


def test_a_checkpoint_that_cannot_be_written_to_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="expected a writable directory, found: "), locked(str(tmp_path / "file")):
        pass


def test_a_remote_checkpoint_is_not_locked() -> None:
    with locked("s3a://bucket/checkpoint"), locked("s3a://bucket/checkpoint"):
        pass
