"""The distributions of a release: two builds are the same bytes, each has its licences and its types, and they run.

The demo runs as for somebody who has installed the wheels: nothing of the source tree is on the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from txnwatch_demo.command import STEPS

ROOT = Path(__file__).parents[2]
BUILD_S = DEMO_S = 300.0
EPOCH_S = 1_700_000_000
IMPORT_ALL = """
import importlib, pkgutil, txnwatch, txnwatch_demo
for package in (txnwatch, txnwatch_demo):
    names = [package.__name__, *(one.name for one in pkgutil.walk_packages(package.__path__, package.__name__ + "."))]
    for name in names:
        if not name.endswith("__main__"):
            print(name, importlib.import_module(name).__file__)
"""


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


@pytest.fixture(scope="module")
def wheel(dists: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of txnwatch, unpacked."""
    return unpacked(dists, "txnwatch", tmp_path_factory)


@pytest.fixture(scope="module")
def demo_wheel(dists: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of txnwatch-demo, unpacked."""
    return unpacked(dists, "txnwatch_demo", tmp_path_factory)


def unpacked(dists: dict[str, Path], package: str, places: pytest.TempPathFactory) -> Path:
    (path,) = (path for name, path in dists.items() if name.startswith(f"{package}-") and name.endswith(".whl"))
    target = places.mktemp(package)
    with zipfile.ZipFile(path) as packed:
        packed.extractall(target)
    return target


def packages(wheel: Path) -> set[str]:
    """Every directory with modules."""
    return {path.parent.relative_to(wheel).as_posix() for path in wheel.rglob("*.py")}


def run(wheels: tuple[Path, ...], cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, wheels))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        check=False,
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEMO_S,
    )


def test_only_the_second_wheel_has_the_demo_and_the_servers(wheel: Path, demo_wheel: Path) -> None:
    assert packages(demo_wheel) == {"txnwatch_demo", "txnwatch_demo/embedded"}
    assert {name.split("/")[0] for name in packages(wheel)} == {"txnwatch"}
    assert {name for name in packages(wheel) if "demo" in name or "embedded" in name} == set()
    assert {"txnwatch/state", "txnwatch/streaming", "txnwatch/sinks", "txnwatch/cli"} < packages(wheel)


def test_without_the_second_wheel_the_demo_ends_with_one_line(wheel: Path, tmp_path: Path) -> None:
    for found in Path(sysconfig.get_path("purelib")).iterdir():  # the environment of the tests has both distributions
        if not found.name.startswith(("txnwatch", "__editable__")):
            (tmp_path / found.name).symlink_to(found)
    shown = run((wheel, tmp_path), tmp_path, "-S", "-m", "txnwatch", "demo")
    expected = "txnwatch: the command demo is in the package txnwatch-demo, which is not installed (docs/install.md)\n"
    assert (shown.returncode, shown.stdout, shown.stderr) == (2, "", expected)


def test_each_module_of_the_wheels_can_be_imported(wheel: Path, demo_wheel: Path, tmp_path: Path) -> None:
    shown = run((wheel, demo_wheel), tmp_path, "-c", IMPORT_ALL)
    assert (shown.returncode, shown.stderr) == (0, "")
    modules = {path.relative_to(one) for one in (wheel, demo_wheel) for path in one.rglob("*.py")}
    imported = {line.partition(" ")[0]: line.partition(" ")[2] for line in shown.stdout.splitlines()}
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in modules}
    assert imported.keys() == {name for name in names if not name.endswith("__main__")}
    assert [name for name, place in imported.items() if not Path(place).is_relative_to(wheel.parents[0])] == []


@pytest.mark.long
def test_the_demo_of_the_wheels_observes_every_step(wheel: Path, demo_wheel: Path, tmp_path: Path) -> None:
    wheels = (wheel, demo_wheel)
    (tmp_path / "random.py").write_text("raise ImportError('a file of the user')")
    found = run(wheels, tmp_path, "-c", "import txnwatch, txnwatch_demo as d; print(txnwatch.__file__, d.__file__)")
    for place, of in zip(found.stdout.split(), wheels, strict=True):
        assert Path(place).is_relative_to(of)
    shown = run(wheels, tmp_path, "-m", "txnwatch", "demo", "--svg", "screen.svg")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert shown.stderr == ""
    at = [shown.stdout.find(step) for step in STEPS]
    assert at == sorted(at)
    assert -1 not in at
    assert f"All {len(STEPS)} steps observed." in shown.stdout
    assert "\x1b" not in shown.stdout, "plain lines when nobody looks"
    picture = (tmp_path / "screen.svg").read_text()
    for expected in ("hanging", "already_completed", "checkout-7", "payments-0"):
        assert expected in re.sub(r"&#160;|<[^>]*>", " ", picture), expected
    assert {entry.name for entry in tmp_path.iterdir()} == {"screen.svg", "random.py"}
