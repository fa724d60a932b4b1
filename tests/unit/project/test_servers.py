"""The servers of the tests: one variable sets what they run on, and the names of shared clusters are used once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.servers import on_docker, pytest_collection_modifyitems, pytest_configure
from support.units import SHARED, UnitScheduling
from txnwatch_demo.embedded import real_servers
from txnwatch_demo.embedded.real_servers import free_ports

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


def test_each_port_is_that_of_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    every = list(real_servers.PORTS)
    found: list[int] = []
    for worker in range(3):
        monkeypatch.setattr(real_servers, "PORTS", every)
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
        monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
        pytest_configure()
        found += real_servers.PORTS
    assert sorted(found) == every


def test_a_server_gets_no_port_of_another_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    own = free_ports(3)
    monkeypatch.setattr(real_servers, "PORTS", own)
    assert sorted(free_ports(3)) == sorted(own)
    with pytest.raises(OSError, match="expected 4 free ports"):
        free_ports(4)


def test_files_with_one_cluster_follow_each_other_and_files_without_one_are_the_last() -> None:
    fixtures_of = {
        "without.py": ["redis_server"],
        "one_a.py": ["clusters", "kafka", "cluster"],
        "three_a.py": ["clusters", "kafka3"],
        "own.py": ["clusters", "guarded"],
        "one_b.py": ["clusters", "kafka"],
        "three_b.py": ["clusters", "kafka3"],
    }
    items: list[Any] = [
        SimpleNamespace(path=Path(name), fixturenames=names)
        for name, fixtures in fixtures_of.items()
        for names in ([], fixtures)  # a file also has tests that use nothing
    ]
    pytest_collection_modifyitems(items)
    order = ["three_a.py", "three_b.py", "own.py", "one_a.py", "one_b.py", "without.py"]
    assert [item.path.name for item in items] == [name for name in order for _ in range(2)]


def test_the_files_with_a_fixture_of_the_session_that_starts_slowly_are_one_unit_and_each_other_file_is_one() -> None:
    tests = [
        "integration/test_fetch.py::test_a",
        "integration/test_failover_admin.py::test_b[x::y]",
        "integration/test_census.py::test_c",
        "e2e/test_run.py::test_d",
        "browser/test_whole_watch.py::test_e",
    ]
    scheduling = UnitScheduling.__new__(UnitScheduling)
    of_xdist = "_split_scope"  # the method with which pytest-xdist asks for the unit
    units = [methodcaller(of_xdist, f"tests/{name}")(scheduling) for name in tests]
    assert units == ["kafka3", "kafka3", "tests/integration/test_census.py", "shared_watch", "shared_watch"]


@pytest.mark.parametrize("shared", SHARED)
def test_no_fixture_hides_one_that_makes_files_a_unit(shared: str) -> None:
    """The unit of a file is known by the name of the fixture in it."""
    named = [path.name for path in (ROOT / "tests").rglob("*.py") if f"{shared}: " in path.read_text()]
    assert [name for name in named if not name.startswith("test_")] == []


def test_no_module_has_a_fixture_with_the_name_of_a_cluster_of_the_session() -> None:
    """By its name a cluster is started again before a test, so a second one of this name would be stopped."""
    names = "|".join({"kafka", *SHARED})
    found = [
        path.name
        for path in (ROOT / "tests").rglob("*.py")
        if re.search(rf"fixture.*\n(?:.*\n)?def (?:{names})\(", path.read_text())
    ]
    assert sorted(found) == ["servers.py", "shared_watch.py"]
