"""How an embedded Kafka starts, without starting one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from txnwatch_demo.embedded import real_servers
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


def test_a_cluster_that_starts_again_is_not_formatted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, formatted = EmbeddedKafka(tmp_path, brokers=2), list[list[str]]()

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        formatted.append(command)
        data = cluster.log_directory(len(formatted))
        data.mkdir()
        (data / "meta.properties").touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(real_servers, "java", lambda: "java")
    monkeypatch.setattr(real_servers, "kafka_jars", lambda *_: tmp_path)
    monkeypatch.setattr(real_servers, "prepare_archive", lambda *_: None)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(EmbeddedKafka, "start_broker", lambda *_: None)
    cluster.start()
    cluster.start()
    assert [command[command.index("format") - 1] for command in formatted] == ["kafka.tools.StorageTool"] * 2
