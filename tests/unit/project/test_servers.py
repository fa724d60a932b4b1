"""The servers of the tests: one variable sets what they run on, and the names of shared clusters are used once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.servers import on_docker

ROOT = Path(__file__).parents[3]
VARIABLE = "TXNWATCH_TEST_SERVERS"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, False, id="unset"),
        pytest.param({VARIABLE: ""}, False, id="empty"),
        pytest.param({VARIABLE: "embedded"}, False, id="embedded"),
        pytest.param({VARIABLE: "docker"}, True, id="docker"),
    ],
)
def test_servers_are_embedded_unless_docker_is_asked_for(environ: dict[str, str], expected: bool) -> None:  # noqa: FBT001
    assert on_docker(environ) is expected


@pytest.mark.parametrize("unknown", ["podman", "Docker", "1"])
def test_an_unknown_kind_of_server_is_an_error_that_names_the_variable_and_the_value(unknown: str) -> None:
    expected = f"^{VARIABLE}: expected embedded or docker, found '{unknown}'$"
    with pytest.raises(pytest.UsageError, match=expected):
        on_docker({VARIABLE: unknown})


def test_a_session_with_an_unknown_kind_of_server_ends_before_its_first_test() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", __file__],
        env={**os.environ, VARIABLE: "podman"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (pytest.ExitCode.USAGE_ERROR, "")
    assert f"{VARIABLE}: expected embedded or docker, found 'podman'" in done.stderr


def test_no_module_has_a_fixture_with_the_name_of_a_cluster_of_the_session() -> None:
    """By its name a cluster is started again before a test, so a second one of this name would be stopped."""
    named = [
        str(path)
        for path in (ROOT / "tests").rglob("*.py")
        if path != ROOT / "tests" / "support" / "servers.py"
        and re.search(r"fixture.*\n(?:.*\n)?def kafka3?\(", path.read_text())
    ]
    assert named == []
