"""What `explain` says about Kafka Connect on a real broker: its workers' group, and a hang on an internal topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.consumer import JoinGroupRequest

from support.kafka_faults import late_write_after_abort
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import commit_an_offset, create_topic
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

GROUP = "dwh"
TOPICS = [f"{GROUP}-configs", f"{GROUP}-offsets", f"{GROUP}-status"]


@pytest.fixture(scope="module")
def workers(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp("connect")
    workers = clusters.start("connect", lambda: EmbeddedKafka(directory))
    set_verification(workers.bootstrap_servers, [1], enabled=False)
    with closing(connect(workers)) as cluster:
        for name in TOPICS:
            (partition,) = create_topic(cluster, name)
        commit_an_offset(workers, partition)
        RawProducer(cluster, "first").init()
    yield workers
    clusters.end("connect")


def join(cluster: Cluster) -> None:
    """Joins as a worker of Connect joins; the broker never reads its metadata."""
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    request = JoinGroupRequest(
        version=3,
        group_id=GROUP,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="connect",
        protocols=[protocol(version=3, name="sessioned", metadata=b"\0")],
    )

    def has_joined() -> bool:
        return cluster.call(cluster.any_connection(), request).error_code == 0

    eventually(has_joined, 30.0, "the worker to join")
    eventually(lambda: ClusterGroups(cluster).find(GROUP).group is not None, 30.0, "the group to be listed")


def test_a_hang_on_an_internal_topic_is_found_by_the_workers_group(
    workers: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    def asked(*arguments: str, code: int) -> dict[str, Any]:
        server = ("--bootstrap-server", workers.bootstrap_servers, "--format", "json", "--fail-on-found")
        assert main(["explain", *arguments, *server]) == code
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        return {**row, "text": " ".join(row["text"])}

    with closing(connect(workers)) as cluster:
        join(cluster)
        clear = asked(GROUP, code=0)
        assert (clear["state"], "the group of Kafka Connect's workers" in clear["text"]) == ("all_clear", True)
        assert "All clear: no transaction is open on these topics." in clear["text"]
        late_write_after_abort(cluster, f"connect-cluster-{GROUP}", TopicPartition(TOPICS[1], 0))
        for arguments in ((GROUP,), ("--group", GROUP), (TOPICS[1],), (f"{TOPICS[1]}-0",)):
            row = asked(*arguments, code=3)
            assert row["state"] == "hanging"
            assert f"By its name, {TOPICS[1]} is an internal topic of Kafka Connect" in row["text"]
            assert "Workers with exactly.once.source.support that start now load no connectors" in row["text"]
            assert row["next"] is not None
        by_group = (
            f"{TOPICS[1]} is an internal topic of Kafka Connect (offset.storage.topic of the workers of group {GROUP})"
        )
        assert main(["find-hanging", "--bootstrap-server", workers.bootstrap_servers, "--format", "json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["rows"]
        assert by_group in found["connect"]
        assert main(["find-hanging", "--bootstrap-server", workers.bootstrap_servers]) == 0
        assert by_group in capsys.readouterr().out
