"""A cluster on which no transaction was ever begun: the commands say so, and create no `__transaction_state`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from support.servers import Clusters, connect
from support.topics import commit_an_offset, create_topic
from txnwatch.cli.main import main
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

NEVER = "no transactional producer was ever used on this cluster"
CLEAR = "all clear"


@pytest.fixture(scope="module")
def unused(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    started = clusters.start("unused", lambda: EmbeddedKafka(tmp_path_factory.mktemp("unused")))
    with closing(connect(started)) as cluster:
        (partition,) = create_topic(cluster, "orders")
    commit_an_offset(started, partition, "billing")
    yield started
    clusters.end("unused")


ASKED = {
    "a name": (("explain", "checkout-7"), 1, NEVER),
    "an id": (("explain", "--transactional-id", "checkout-7"), 1, NEVER),
    "a partition": (("explain", "orders-0"), 0, CLEAR),
    "a topic": (("explain", "orders"), 0, CLEAR),
    "a group": (("explain", "billing"), 0, CLEAR),
    "an error": (("explain", "CONCURRENT_TRANSACTIONS"), 0, "its markers are not all written yet"),
    "the list": (("list",), 0, NEVER),
    "the search": (("find-hanging",), 0, NEVER),
    "describe": (("describe", "checkout-7"), 1, NEVER),
    "fence": (("fence", "checkout-7", "--dry-run"), 1, NEVER),
}


@pytest.mark.parametrize(("command", "code", "says"), ASKED.values(), ids=ASKED.keys())
def test_it_is_said_and_nothing_is_created(
    command: tuple[str, ...], code: int, says: str, unused: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--bootstrap-server", unused.bootstrap_servers]) == code
    out, err = capsys.readouterr()
    assert says.lower() in (out + err).lower()
    assert "COORDINATOR_NOT_AVAILABLE" not in out + err
    with closing(connect(unused)) as cluster:
        assert TRANSACTION_STATE_TOPIC not in cluster.refresh().topics
