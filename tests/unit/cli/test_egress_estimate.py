"""The estimate of the bytes that `run` moves uses the settings of `run`: which topics it reads, and how often."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.problems import a_problem
from txnwatch.cli import doctor_rows
from txnwatch.cli.doctor_rows import Caller, egress_rows
from txnwatch.cli.main import parser
from txnwatch.cli.one_shot import take_settings
from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.state.text import Grantee
from txnwatch.streaming.checks.checkup import CensusBytes, LogBytes, WriteRates
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo

NAMES = ("orders", "mirror.orders", "clicks", "logs", "__consumer_offsets", "__transaction_state")
TOPICS = {name: TopicInfo(name, "id", {0: PartitionInfo(1, 0)}) for name in NAMES}
HIDDEN = TopicInfo("secret", "", {}, a_problem("TOPIC_AUTHORIZATION_FAILED"))
CALLER = Caller(Grantee("a:1", "User:watcher"), "txnwatch.events")
LOG, API = CoordinatorAccess.LOG, CoordinatorAccess.API


class Asked:
    """Replaces the three estimates; each is of one byte, or one byte per topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scans: list[list[str]] = []
        self.censuses: list[list[str]] = []
        self.log_reads = 0
        monkeypatch.setattr(doctor_rows, "write_rates", self.rates)
        monkeypatch.setattr(doctor_rows, "census_bytes", self.census)
        monkeypatch.setattr(doctor_rows, "coordinator_log_bytes", self.log)

    def rates(self, _: Any, topics: Iterable[str], __: int) -> WriteRates:
        self.scans.append(list(topics))
        return WriteRates(dict.fromkeys(self.scans[-1], 1.0))

    def census(self, _: Any, topics: Iterable[str], __: int) -> CensusBytes:
        self.censuses.append(list(topics))
        return CensusBytes(len(self.censuses[-1]), len(self.censuses[-1]))

    def log(self, *_: Any) -> LogBytes:
        self.log_reads += 1
        return LogBytes(1.0, 1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def details(config: Path, text: str, *flags: str, access: CoordinatorAccess = LOG) -> list[str]:
    """The rows of `doctor` with a settings file and flags."""
    config.write_text(text)
    parsed = parser(("doctor",)).parse_args(["doctor", "--bootstrap-server", "a:1", "--config", str(config), *flags])
    take_settings(parsed)
    cluster: Any = SimpleNamespace(known=Metadata("c", {}, {**TOPICS, HIDDEN.name: HIDDEN}))
    return [row.detail for row in egress_rows(cluster, parsed, access, CALLER)]


def test_by_default_every_shown_topic_is_scanned_and_the_log_is_read(asked: Asked, tmp_path: Path) -> None:
    scan, log, census = details(tmp_path / "c", "")
    assert asked.scans == [[name for name in NAMES if name != "__transaction_state"]]
    assert asked.censuses == [asked.scans[0], []]
    assert scan.startswith("about 432 kB a day")
    assert log.startswith("about 86.4 kB a day")
    assert "5 scanned partitions every 60 s" in census


def test_the_configured_topics_and_intervals_count(asked: Asked, tmp_path: Path) -> None:
    text = """
topics = "orders|.*orders"
census_topics = "clicks|.*orders"
foreign_topics = "mirror.*"
census_interval_ms = 20000
heal_interval_ms = 600000
"""
    *_, census = details(tmp_path / "c", text)
    assert (asked.scans, asked.censuses) == ([["orders"]], [["orders"], ["clicks"]])
    assert "1 other partitions every 20 s" in census
    assert "1 scanned partitions every 600 s" in census


def test_a_flag_is_before_the_file(asked: Asked, tmp_path: Path) -> None:
    flags = ("--census-topics", "logs", "--census-interval-ms", "7000")
    *_, census = details(tmp_path / "c", 'topics = "orders"\ncensus_topics = "clicks"', *flags)
    assert asked.censuses == [["orders"], ["logs"]]
    assert "1 other partitions every 7 s" in census


def test_a_view_without_the_log_does_not_read_it(asked: Asked, tmp_path: Path) -> None:
    assert details(tmp_path / "c", "", access=API)[1] == "not read: the coordinator view is api"
    assert asked.log_reads == 0
