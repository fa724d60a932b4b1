"""`txnwatch demo --keep`: the commands that it prints work when they are pasted."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import eventually

PASTED = ("status", "find-hanging", "explain", "redis-cli")


KEPT = ("payments-1", "checkout-8")


def pasted(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A line that is pasted into a shell without a PATH of the developer's."""
    path = {"PATH": "/usr/bin:/bin"}
    return subprocess.run(
        ["bash", "-c", line], check=False, cwd=directory, env=path, capture_output=True, text=True, timeout=60.0
    )


def is_clean(line: str, directory: Path) -> bool:
    """Whether it ends with 0 and no error; what looks at the cluster shows the hang that was kept, and whom to call."""
    done = pasted(line, directory)
    assert done.stderr == ""
    if done.returncode == 0 and "redis-cli" not in line and "explain checkout-7" not in line:
        assert all(name in done.stdout for name in (*KEPT, "#payments")), done.stdout
    return done.returncode == 0


@pytest.mark.long
def test_the_commands_that_a_kept_demo_prints_work_when_they_are_pasted(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-P", "-m", "txnwatch", "demo", "--keep"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            shown = list(iter(demo.stdout.readline, "Ctrl-C stops everything.\n"))
            at = next(number for number, line in enumerate(shown) if line.endswith("Commands to try:\n"))
            lines = [line.strip() for line in shown[at + 1 :]]
            looks = [line for line in lines if any(f"{word} " in line for word in PASTED)]
            assert len(looks) == len(PASTED) + 3, "explain of a partition, of a group and of two ids"
            for line in looks:  # `status` names a partition that is unproven for a moment as not checked
                eventually(functools.partial(is_clean, line, tmp_path), 120.0, line)
            told = pasted(next(line for line in looks if "explain payments-1" in line), tmp_path).stdout
            step = next(line for line in told.splitlines() if line.startswith("next: ")).removeprefix("next: ")
            ends = step.replace(" && ", " --yes && ") + " --yes"
            done = pasted(f"{lines[0]}\n{ends}", tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            search = next(line for line in looks if "find-hanging" in line)
            eventually(lambda: "nothing hangs" in pasted(search, tmp_path).stdout, 60.0, "the hang to be gone")
        finally:
            demo.terminate()
