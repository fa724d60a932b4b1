"""The lines that `txnwatch demo --keep` prints: they work when they are pasted, without anything on the PATH."""

from __future__ import annotations

import contextlib
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

from txnwatch.cli.main import COMMANDS, parser
from txnwatch_demo.screen import DemoView
from txnwatch_demo.stage import DemoServers


def lines() -> list[list[str]]:
    servers = DemoServers(Path("/tmp/my demo"), DemoView(), contextlib.ExitStack())
    servers.bootstrap = "127.0.0.1:39092"
    servers.redis = SimpleNamespace(url="redis://127.0.0.1:36379/0")  # type: ignore[assignment]
    servers.cluster = SimpleNamespace(known=SimpleNamespace(cluster_id="my-cluster"))  # type: ignore[assignment]
    return [shlex.split(line) for line in servers.commands_to_try()]


def test_each_command_of_txnwatch_parses_and_knows_the_brokers() -> None:
    ours = [line[3:] for line in lines() if line[:3] == [sys.executable, "-m", "txnwatch"]]
    assert [line[0] for line in ours] == ["status", "events", "find-hanging", "explain", "explain"]
    for line in ours:
        assert parser(COMMANDS).parse_args(line).bootstrap_server == "127.0.0.1:39092"


def test_redis_cli_is_the_one_that_is_installed_with_the_server() -> None:
    (redis,) = (line for line in lines() if line[0].endswith("redis-cli"))
    assert Path(redis[0]).is_file()
    assert redis[1:4] == ["-u", "redis://127.0.0.1:36379/0", "zrange"]
    assert redis[4] == "txnwatch:{my-cluster}:incidents"


def test_a_path_with_a_space_is_one_argument() -> None:
    assert ["tail", "-f", "/tmp/my demo/checkpoint/spark.log"] in lines()
