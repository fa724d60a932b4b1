"""The archive of classes of the embedded brokers, with a real JVM."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from txnwatch.streaming.job.jvm import java
from txnwatch_demo.embedded.jars import class_options, kafka_jars
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


def test_every_broker_maps_the_archive_beside_its_jars(kafka3: EmbeddedKafka) -> None:
    archive = str(kafka_jars() / "classes.jsa")
    mapped = [Path(f"/proc/{kafka3.broker(node).pid}/maps").read_text() for node in (1, 2, 3)]
    assert [archive in text for text in mapped] == [True, True, True]


def test_a_jvm_says_nothing_about_an_archive_that_does_not_fit(
    kafka3: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of a tool is read by a program."""
    assert kafka3.broker(1).is_running, "the archive is there"
    monkeypatch.setattr("txnwatch_demo.embedded.jars.ARCHIVES", {tmp_path: kafka_jars() / "classes.jsa"})
    done = subprocess.run(
        [java(), "-XX:+UseSerialGC", *class_options(tmp_path), "-version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert [line for line in done.stderr.splitlines() if "rchive" in line or "warning" in line] == []
