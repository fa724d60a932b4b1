"""`txnwatch demo` as somebody runs it who has installed the wheels: nothing of the source tree on the path."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.waiting import eventually
from txnwatch_demo.command import STEPS

ROOT = Path(__file__).parents[2]
DEMO_S = 300.0


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, without what other builds left."""
    copied = tmp_path_factory.mktemp("sources") / "txnwatch"
    shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "tests"))
    return copied


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of txnwatch, unpacked."""
    return unpacked(sources, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def demo_wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of txnwatch-demo, unpacked."""
    return unpacked(sources / "src" / "txnwatch_demo", tmp_path_factory.mktemp("demo_wheel"))


def unpacked(project: Path, target: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    subprocess.run([*pip, "--target", str(target), str(project)], check=True, timeout=DEMO_S)
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
