"""The distributions of a release: two builds are the same bytes, and each has its licences and its types."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD_S = 300.0
EPOCH_S = 1_700_000_000


def built(tree: Path, output: Path, zone: str, umask: int) -> dict[str, Path]:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH_S), "TZ": zone}
    command = [sys.executable, str(tree / "scripts" / "dists.py"), str(output)]
    subprocess.run(command, check=True, env=environment, umask=umask, timeout=BUILD_S)
    return {path.name: path for path in sorted(output.iterdir())}


@pytest.fixture(scope="module")
def dists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A build of this tree."""
    return built(ROOT, tmp_path_factory.mktemp("dists") / "one", "UTC", 0o022)


@pytest.mark.long
def test_two_builds_are_the_same_bytes(dists: dict[str, Path], tmp_path: Path) -> None:
    """The other one is of a copy in another directory, with other modes and the rest of a build in it."""
    copy = tmp_path / "copy"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
        (copy / name).chmod(0o700 if os.access(ROOT / name, os.X_OK) else 0o600)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=copy, check=True)
    (copy / "build" / "lib" / "txnwatch").mkdir(parents=True)
    (copy / "build" / "lib" / "txnwatch" / "left.py").write_text("")
    others = built(copy, tmp_path / "two", "Asia/Tokyo", 0o077)
    assert len(dists) == 4
    assert dists.keys() == others.keys()
    assert [name for name in dists if dists[name].read_bytes() != others[name].read_bytes()] == []


def test_a_wheel_has_its_licences_and_its_types(dists: dict[str, Path]) -> None:
    for name, path in dists.items():
        if not name.endswith(".whl"):
            continue
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            (metadata,) = (wheel.read(one).decode() for one in names if one.endswith("METADATA"))
        package = name.partition("-")[0]
        assert f"{package}/py.typed" in names
        licences = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("License-File: ")]
        vendored = [f"src/{one}" for one in names if one.endswith(".LICENSE") and "dist-info" not in one]
        assert sorted(licences) == sorted(["LICENSE", *vendored])
        assert {f"{package}-0.1.0.dist-info/licenses/{one}" for one in licences} <= set(names)


def test_a_source_distribution_has_no_user_and_no_time_of_its_build(dists: dict[str, Path]) -> None:
    for name, path in dists.items():
        if name.endswith(".tar.gz"):
            with tarfile.open(path) as archive:
                found = {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in archive.getmembers()}
            assert found == {(EPOCH_S, 0, 0, "", "")}
