"""The lines that `txnwatch demo --keep` prints: they work when they are pasted, without anything on the PATH."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from txnwatch.cli.main import COMMANDS, parser
from txnwatch.owners.owner_table import read_owners
from txnwatch_demo.screen import DemoView
from txnwatch_demo.stage import OWNERS, DemoServers


def servers() -> DemoServers:
    found = DemoServers(Path("/tmp/my demo"), DemoView(), contextlib.ExitStack())
    found.bootstrap = "127.0.0.1:39092"
    found.redis = SimpleNamespace(url="redis://127.0.0.1:36379/0")  # type: ignore[assignment]
    found.cluster = SimpleNamespace(known=SimpleNamespace(cluster_id="my-cluster"))  # type: ignore[assignment]
    return found


def lines() -> list[list[str]]:
    return [shlex.split(line) for line in servers().commands_to_try()[1:]]


def test_each_command_of_txnwatch_parses_and_knows_the_brokers() -> None:
    ours = [line[3:] for line in lines() if line[:3] == [sys.executable, "-m", "txnwatch"]]
    assert [line[0] for line in ours] == ["status", "events", "find-hanging", *["explain"] * 4]
    for line in ours:
        parsed = parser(COMMANDS).parse_args(line)
        assert (parsed.bootstrap_server, parsed.owners_file) == ("127.0.0.1:39092", "/tmp/my demo/owners.toml")


def test_the_first_line_lets_the_commands_of_the_answers_run() -> None:
    line = servers().commands_to_try()[0]
    done = subprocess.run(
        ["bash", "-c", f"{line}\ntxnwatch --version"], check=True, env={}, capture_output=True, text=True
    )
    assert done.stdout.startswith("txnwatch ")


def test_the_owners_are_a_table(tmp_path: Path) -> None:
    (tmp_path / "owners.toml").write_text(OWNERS)
    assert read_owners(tmp_path / "owners.toml").teams == ["payments"]


def test_redis_cli_is_the_one_that_is_installed_with_the_server() -> None:
    (redis,) = (line for line in lines() if line[0].endswith("redis-cli"))
    assert Path(redis[0]).is_file()
    assert redis[1:4] == ["-u", "redis://127.0.0.1:36379/0", "zrange"]
    assert redis[4] == "txnwatch:{my-cluster}:incidents"


def test_a_path_with_a_space_is_one_argument() -> None:
    assert ["tail", "-f", "/tmp/my demo/checkpoint/spark.log"] in lines()
