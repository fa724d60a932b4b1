"""The scripts that install Debian packages for tests: as root, with sudo, or not at all; nothing is installed here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = "a-package"
NEEDED = ("bash", "env", "tail", "timeout", "true")
INSTALL = '. scripts/debian.sh; install_debian "$PACKAGE" "A tool"'


def commands_in(directory: Path, *, user: int, has_sudo: bool = True, fails: bool = False) -> dict[str, str]:
    """An environment in which apt-get and sudo only write what they were called with."""
    for name in NEEDED:
        (directory / name).symlink_to(str(shutil.which(name)))
    written = {
        "id": f"echo {user}",
        "apt-get": f'echo "apt-get $*" >>"$CALLS"; echo "no mirror"; exit {int(fails)}',
        "sudo": f'[ "$1" = -n ] && shift && echo "sudo $1" >>"$CALLS"; [ {int(has_sudo)} = 1 ] && exec "$@"',
    }
    for name, script in written.items():
        (directory / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (directory / name).chmod(0o755)
    return {"PATH": str(directory), "CALLS": str(directory / "calls"), "PACKAGE": PACKAGE, "TMPDIR": str(directory)}


def installed(directory: Path, environ: dict[str, str]) -> tuple[int, str, list[str]]:
    bash = str(shutil.which("bash"))
    done = subprocess.run([bash, "-c", INSTALL], env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    calls = directory / "calls"
    return done.returncode, done.stderr, calls.read_text().splitlines() if calls.exists() else []


UPDATE, INSTALLS = "apt-get update", "apt-get install -y --no-install-recommends " + PACKAGE


def test_root_needs_no_sudo(tmp_path: Path) -> None:
    assert installed(tmp_path, commands_in(tmp_path, user=0)) == (0, "", [UPDATE, INSTALLS])


def test_another_user_installs_with_sudo(tmp_path: Path) -> None:
    code, _, calls = installed(tmp_path, commands_in(tmp_path, user=1000))
    assert code == 0
    assert [call for call in calls if not call.startswith("sudo")] == [UPDATE, INSTALLS]
    assert calls.count("sudo timeout") == 1
    assert calls.count("sudo env") == 1


def test_without_a_right_nothing_is_tried_and_the_reason_is_said(tmp_path: Path) -> None:
    code, said, calls = installed(tmp_path, commands_in(tmp_path, user=1000, has_sudo=False))
    assert (code, said) == (1, "there is no A tool, and it cannot be installed here\n")
    assert not [call for call in calls if call.startswith("apt-get")]


def test_what_apt_says_last_is_the_reason(tmp_path: Path) -> None:
    code, said, _ = installed(tmp_path, commands_in(tmp_path, user=0, fails=True))
    assert (code, said) == (1, "A tool cannot be installed: no mirror\n")


@pytest.mark.parametrize("script", ["alertmanager.sh", "browser.sh"])
def test_a_script_that_installs_can_be_run_and_is_valid(script: str) -> None:
    path = ROOT / "scripts" / script
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
