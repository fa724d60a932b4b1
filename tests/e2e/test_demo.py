"""`txnwatch demo` as somebody runs it who has installed the wheel: nothing of the source tree on the path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from txnwatch_demo.play import STEPS

ROOT = Path(__file__).parents[2]
DEMO_S = 300.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources and unpacked."""
    sources, built = tmp_path_factory.mktemp("sources") / "txnwatch", tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "tests"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    subprocess.run([*pip, "--target", str(built), str(sources)], check=True, timeout=DEMO_S)
    return built


def run(wheel: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(wheel), "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        check=False,
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=DEMO_S,
    )


def test_the_demo_of_the_wheel_observes_every_step(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("raise ImportError('a file of the user')")
    found = run(wheel, tmp_path, "-c", "import txnwatch; print(txnwatch.__file__)")
    assert Path(found.stdout.strip()).is_relative_to(wheel)
    shown = run(wheel, tmp_path, "-m", "txnwatch", "demo", "--svg", "screen.svg")
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
