"""How an embedded Kafka starts, without starting one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from txnwatch_demo.embedded import real_servers
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


class StorageTool:
    """Kafka's tool, which keeps its commands and formats the directory of the settings it was given."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        data = Path(command[command.index("-c") + 1]).parent / "data"
        (data / "__cluster_metadata-0").mkdir(parents=True)
        (data / "__cluster_metadata-0" / "features").write_text(f"features of {len(self.commands)}")
        (data / "meta.properties").write_text(command[command.index("-t") + 1])
        return subprocess.CompletedProcess(command, 0)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StorageTool:
    made = StorageTool()
    monkeypatch.setattr(real_servers, "java", lambda: "java")
    monkeypatch.setattr(real_servers, "kafka_jars", lambda *_: tmp_path)
    monkeypatch.setattr(real_servers, "prepare_archive", lambda *_: None)
    monkeypatch.setattr(real_servers, "FORMATTED", {})
    monkeypatch.setattr(subprocess, "run", made.run)
    monkeypatch.setattr(EmbeddedKafka, "start_broker", lambda *_: None)
    return made


def test_a_cluster_that_starts_again_is_not_formatted_again(tmp_path: Path, tool: StorageTool) -> None:
    cluster = EmbeddedKafka(tmp_path, brokers=2)
    cluster.start()
    cluster.start()
    assert [command[command.index("format") - 1] for command in tool.commands] == ["kafka.tools.StorageTool"] * 2


def test_the_second_cluster_of_a_kind_is_a_copy_with_its_own_id(tmp_path: Path, tool: StorageTool) -> None:
    EmbeddedKafka(tmp_path / "first").start()
    second = EmbeddedKafka(tmp_path / "second", brokers=2).start()
    assert len(tool.commands) == 2  # the first controller, and the first node that is none
    data = second.log_directory(1)
    assert (data / "__cluster_metadata-0" / "features").read_text() == "features of 1"
    assert f"cluster.id={second.cluster_id}\nnode.id=1\n" in (data / "meta.properties").read_text()
    assert second.cluster_id == (second.log_directory(2) / "meta.properties").read_text()


@pytest.mark.parametrize(
    "other", [{"version": "3.9.2"}, {"features": {"transaction.version": 1}}], ids=["version", "features"]
)
def test_a_cluster_of_another_kind_is_formatted(tmp_path: Path, tool: StorageTool, other: dict[str, Any]) -> None:
    EmbeddedKafka(tmp_path / "first").start()
    second = EmbeddedKafka(tmp_path / "second", **other).start()
    assert len(tool.commands) == 2
    assert (second.log_directory(1) / "meta.properties").read_text() == second.cluster_id
