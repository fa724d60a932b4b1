"""A healthy cluster has no warning: with the brokers and the applications of the soak, and those of the demo."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from soak.brokers import BROKER
from support.audit_runs import audit_rows, severities
from support.fleet import fleet_of
from support.servers import Clusters, connect
from support.topics import create_topic
from support.waiting import eventually
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC
from txnwatch.streaming.audit.gathering import gather
from txnwatch_demo.embedded.jars import KAFKA_VERSION
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.screen import DemoView
from txnwatch_demo.stage import DemoServers

VERSIONS = ("4.4.0", "4.3.1", "3.9.2", "3.3.2")
NEEDS_AN_UPGRADE = {
    "4.4.0": {"marker-skipped", "old-protocol"},
    "4.3.1": {"marker-skipped", "old-protocol"},
    "3.9.2": set[str](),
    "3.3.2": {"no-verification", "stuck-prepare-bugs"},
}
NO_AUTHORIZER = {"internal-writers"}
ONE_BROKER = {"coordinator-log-config", "replication"}
LOG_BYTES = 100_000_000


class DemoBrokers(NamedTuple):
    bootstrap_servers: str
    version: str = KAFKA_VERSION


def has_offsets_in_a_transaction(kafka: EmbeddedKafka) -> bool:
    with contextlib.closing(connect(kafka)) as cluster:
        return CONSUMER_OFFSETS_TOPIC in {topic.name for topic in gather(cluster, LOG_BYTES).transactional_topics}


@pytest.fixture(params=VERSIONS)
def soaked(request: pytest.FixtureRequest, clusters: Clusters, tmp_path: Path) -> Iterator[EmbeddedKafka]:
    name = f"soaked {request.param}"
    yield clusters.start(name, lambda: EmbeddedKafka(tmp_path, brokers=3, version=request.param, properties=BROKER))
    clusters.end(name)


@pytest.mark.long
def test_the_cluster_of_the_soak_has_no_warning(soaked: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(connect(soaked)) as cluster:
        for topic in ("soak.source", "soak.target"):
            create_topic(cluster, topic, 6, config={"retention.ms": "600000", "segment.ms": "60000"})
    fleet = fleet_of(soaked.bootstrap_servers, "soak.source", "soak.target", writers=6, copiers=2)
    with fleet.kept_up():
        eventually(lambda: has_offsets_in_a_transaction(soaked), 120.0, "offsets that are committed in a transaction")
        rows = audit_rows(soaked, capsys)
    assert severities(rows) == {f"info {check}" for check in NEEDS_AN_UPGRADE[soaked.version] | NO_AUTHORIZER}


def test_the_demo_has_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.ExitStack() as stack:
        servers = DemoServers(tmp_path, DemoView(), stack)
        servers.start_servers()
        servers.start_applications()
        rows = audit_rows(DemoBrokers(servers.bootstrap), capsys)
        expected = {f"info {check}" for check in NEEDS_AN_UPGRADE["4.4.0"] | NO_AUTHORIZER | ONE_BROKER}
        assert severities(rows) == expected
        servers.write_late()
        eventually(
            lambda: severities(audit_rows(DemoBrokers(servers.bootstrap), capsys)) == expected,
            30.0,
            "the verification to be on again",
        )
