"""How often coordinators look for expired transactions is read from the brokers: the largest of their values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from support.servers import Clusters, connect, create_coordinators
from support.waiting import eventually
from txnwatch.streaming.admin.kafka_settings import SCAN_INTERVAL, ScanInterval, scan_interval_warning, settings_of
from txnwatch.streaming.source.lister import Lister
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

QUICK_MS, SLOW_MS = 2_000, 60_000


@pytest.fixture(scope="module")
def scans(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Two brokers; the second one scans rarely."""
    directory = tmp_path_factory.mktemp("scans")
    made = EmbeddedKafka(directory, brokers=2, properties={SCAN_INTERVAL: str(QUICK_MS)})
    started = clusters.start("scans", lambda: made)
    started.broker(2).stop()
    (properties,) = directory.glob("*2/server.properties")
    properties.write_text(f"{properties.read_text()}{SCAN_INTERVAL}={SLOW_MS}\n")
    started.start_broker(2)
    create_coordinators(started)
    yield started
    clusters.end("scans")


def test_the_largest_counts_and_an_unreachable_broker_keeps_its_last_answer(scans: EmbeddedKafka) -> None:
    with closing(connect(scans)) as cluster:
        eventually(lambda: len(cluster.refresh().brokers) == 2, 20.0, "both brokers")
        answers = settings_of(cluster, [1, 2], [SCAN_INTERVAL])
        assert {node: found.values for node, found in answers.items()} == {
            1: {SCAN_INTERVAL: str(QUICK_MS)},
            2: {SCAN_INTERVAL: str(SLOW_MS)},
        }
        assert scan_interval_warning(cluster) is None
        options = parse_options({"kafka.bootstrap.servers": scans.bootstrap_servers, "subscribePattern": ".*"})
        lister = Lister(options, cluster)
        offset = lister.next_offset(SourceOffset.beginning())
        assert offset is not None
        assert (offset.scan_interval_ms, offset.barrier_fact({}).scan_interval_ms) == (SLOW_MS, SLOW_MS)

        known = ScanInterval()
        assert known.largest_ms(cluster, 0.0) == SLOW_MS
        scans.broker(2).stop()
        warning = scan_interval_warning(cluster)
        assert warning is not None
        assert "broker 2" in warning
        assert known.largest_ms(cluster, 4_000.0) == SLOW_MS, "it is asked again, and may come back as it was"
        eventually(lambda: len(cluster.refresh().brokers) == 1, 60.0, "the cluster without it")
        assert known.largest_ms(cluster, 5_000.0) == QUICK_MS, "it is no coordinator any more"
