"""What `explain` says about transactional ids on a real broker: how the last transaction ended, and by whom."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from support.answers import state_of
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.kafka import EmbeddedKafka

S = TransactionState
SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
TIMEOUT_MS = 1_000
Tell = Callable[..., str]


@pytest.fixture(scope="module")
def quick(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that looks often for transactions past their timeout."""
    directory = tmp_path_factory.mktemp("quick")
    yield clusters.start("quick", lambda: EmbeddedKafka(directory, properties=SOON))
    clusters.end("quick")


@pytest.fixture
def cluster(quick: EmbeddedKafka) -> Iterator[Cluster]:
    with closing(connect(quick)) as found:
        yield found


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("orders"))
    return created


@pytest.fixture
def tell(quick: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Tell:
    """The text of `explain`, as one line."""

    def told(*arguments: str, code: int = 0) -> str:
        server = ("--bootstrap-server", quick.bootstrap_servers, "--format", "json")
        assert main(["explain", *arguments, *server]) == code
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return " ".join(answer["rows"][0]["text"])

    return told


def begun(cluster: Cluster, partition: TopicPartition, *, version: int = 11, timeout_ms: int = 60_000) -> RawProducer:
    producer = RawProducer(cluster, unique("app"), timeout_ms).init()
    if version < 12:
        producer.add(partition)
    producer.produce(partition, version=version)
    return producer


def await_state(cluster: Cluster, producer: RawProducer, state: TransactionState) -> None:
    admin = ClusterAdmin(cluster)
    eventually(lambda: state_of(admin, producer.transactional_id) is state, 30.0, str(state))


@pytest.mark.parametrize(("version", "end_version"), [(11, 4), (12, 5)])
def test_a_commit_is_its_clients(
    cluster: Cluster, partition: TopicPartition, tell: Tell, version: int, end_version: int
) -> None:
    producer = begun(cluster, partition, version=version)
    producer.end(commit=True, version=end_version)
    await_state(cluster, producer, S.COMPLETE_COMMIT)
    text = tell(producer.transactional_id, "--fail-on-found")
    assert "Its last transaction was committed at " in text
    assert "its client ended it." in text
    assert text.endswith("It is idle: it waits for nothing.")


def test_an_abort_of_an_old_client_is_its_own(cluster: Cluster, partition: TopicPartition, tell: Tell) -> None:
    producer = begun(cluster, partition)
    producer.end(commit=False)
    await_state(cluster, producer, S.COMPLETE_ABORT)
    assert "was aborted at " in (text := tell(producer.transactional_id))
    assert "its client ended it." in text


def test_an_abort_of_a_new_client_may_be_a_fence_until_it_goes_on(
    cluster: Cluster, partition: TopicPartition, tell: Tell
) -> None:
    producer = begun(cluster, partition, version=12)
    producer.end(commit=False, version=5)
    await_state(cluster, producer, S.COMPLETE_ABORT)
    assert "its client aborted it, or its coordinator did for a new InitProducerId" in tell(producer.transactional_id)


def test_a_timeout_is_its_coordinators(cluster: Cluster, partition: TopicPartition, tell: Tell) -> None:
    producer = begun(cluster, partition, timeout_ms=TIMEOUT_MS)
    await_state(cluster, producer, S.COMPLETE_ABORT)
    assert "its coordinator aborted it at its timeout" in tell(producer.transactional_id)


def test_a_fence_is_named_although_the_id_is_empty_now(cluster: Cluster, partition: TopicPartition, tell: Tell) -> None:
    producer = begun(cluster, partition)
    RawProducer(cluster, producer.transactional_id).init()
    await_state(cluster, producer, S.EMPTY)
    text = tell(producer.transactional_id, "--fail-on-found")
    assert "It has not begun a transaction since its last InitProducerId at " in text
    assert "its coordinator aborted it for a new InitProducerId: the application has started again" in text


def test_an_id_that_has_begun_nothing_says_so(cluster: Cluster, tell: Tell) -> None:
    producer = RawProducer(cluster, unique("app")).init()
    assert "It has not begun a transaction since its last InitProducerId at " in tell(producer.transactional_id)
