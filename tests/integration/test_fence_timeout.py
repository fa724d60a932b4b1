"""`txnwatch fence` of an id whose timeout is above the maximum of the brokers: the fence that it promises is sent."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.injection import inject
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import FAILOVER_S, create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.transaction import DescribedTransaction, TransactionState
from txnwatch.state.model.values import DurationMs, ErrorCode, TopicPartition
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS
from txnwatch.streaming.admin.transactions import ClusterAdmin, init_producer_id
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification, write_late

LONGEST_MS, TIMEOUT_MS = DurationMs(120_000), DurationMs(600_000)
MAXIMUM = "transaction.max.timeout.ms"
CASES = ("idle", "open", "hang", "two-phase")


@pytest.fixture(scope="module")
def lowered(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, Any]]:
    """A broker whose maximum was lowered below the timeouts of its ids, and was restarted; the ids by their case."""
    directory = tmp_path_factory.mktemp("lowered")
    kafka = clusters.start("lowered", lambda: EmbeddedKafka(directory))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    with contextlib.closing(connect(kafka)) as cluster:
        (at, hang_at, two_phase_at) = (create_topic(cluster, unique("lowered"))[0] for _ in range(3))
        ids = {case: RawProducer(cluster, unique(case), TIMEOUT_MS).init() for case in CASES}
        ids["open"].add(at)
        ids["open"].produce(at)
        write_late(cluster, ids["hang"], hang_at, commit=False)
        two_phase = ids["two-phase"]
        held = ((two_phase_at.topic, (0,)),)
        inject(cluster, two_phase.transactional_id, _two_phase(two_phase, held))
    kafka.stop()
    settings = directory / "broker-1" / "server.properties"
    settings.write_text(f"{settings.read_text()}{MAXIMUM}={LONGEST_MS}\n")
    kafka.start()
    with contextlib.closing(connect(kafka)) as cluster:
        names = [producer.transactional_id for producer in ids.values()]
        eventually(lambda: _all_described(cluster, names), FAILOVER_S, "the coordinator to have read its log")
    yield kafka, (ids, hang_at)
    clusters.end("lowered")


def _all_described(cluster: Cluster, names: list[str]) -> bool:
    found = ClusterAdmin(cluster).describe_transactions(names)
    return all(isinstance(one, DescribedTransaction) for one in found.values())


def _two_phase(producer: RawProducer, held: Any) -> TransactionLogValue:
    """No release has a stable request that begins one."""
    of_it = producer.producer_id, producer.producer_epoch, TWO_PHASE_TIMEOUT_MS, TransactionState.ONGOING
    return TransactionLogValue(0, *of_it, held, wall_clock_ms(), wall_clock_ms())


@pytest.fixture
def cluster(lowered: tuple[EmbeddedKafka, Any]) -> Iterator[Cluster]:
    with contextlib.closing(connect(lowered[0])) as found:
        yield found


def described(cluster: Cluster, name: str) -> DescribedTransaction:
    found = ClusterAdmin(cluster).describe_transactions([name])[name]
    assert isinstance(found, DescribedTransaction)
    return found


def run(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main([*arguments, "--bootstrap-server", kafka.bootstrap_servers, "--format", "json"])
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    return code, found


@pytest.mark.parametrize("case", ["idle", "open", "two-phase"])
def test_the_fence_names_the_smaller_timeout_and_says_so(
    case: str, lowered: tuple[EmbeddedKafka, Any], cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka, (ids, _) = lowered
    name = ids[case].transactional_id
    before = described(cluster, name)
    own_ms = TWO_PHASE_TIMEOUT_MS if case == "two-phase" else TIMEOUT_MS
    assert before.timeout_ms == own_ms
    refused = init_producer_id(cluster, name, own_ms, None)
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT, "what was sent before, and is refused"
    code, promised = run(kafka, capsys, "fence", name, "--dry-run")
    assert code == 0
    named = f"InitProducerId names {LONGEST_MS} ms, the maximum of broker 1 ({MAXIMUM})"
    assert named in promised["detail"]
    assert ("has no timeout" if case == "two-phase" else f"has a timeout of {own_ms} ms") in promised["detail"]
    assert described(cluster, name) == before
    code, done = run(kafka, capsys, "fence", name, "--yes")
    assert (code, done["result"]) == (0, "fenced")
    after = described(cluster, name)
    assert not after.is_live
    assert after.producer_epoch is not None
    assert after.producer_epoch > (before.producer_epoch or 0)
    keeps = before.state is TransactionState.ONGOING
    assert after.timeout_ms == (own_ms if keeps else LONGEST_MS), "an open transaction is aborted as it is"
    assert ("The id keeps its own" in promised["detail"]) is keeps
    starts = "is refused too (INVALID_TRANSACTION_TIMEOUT) while it asks for more"
    assert (starts in promised["detail"]) is (case != "two-phase")


def test_the_way_out_that_abort_prints_works(
    lowered: tuple[EmbeddedKafka, Any], cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka, (ids, at) = lowered
    producer = ids["hang"]
    assert described(cluster, producer.transactional_id).timeout_ms == TIMEOUT_MS
    hang = ("--topic", at.topic, "--partition", "0", "--start-offset", _start(cluster, at, producer))
    yes = ("--yes", "--accept-unknown-outcome")  # the broker has restarted since
    code, refused = run(kafka, capsys, "abort", *hang, *yes)
    assert (code, refused["result"]) == (5, "refused (epoch_may_be_reused)")
    assert f"txnwatch fence --transactional-id {producer.transactional_id} " in refused["detail"]
    of_it = ("--producer-id", str(producer.producer_id), "--producer-epoch", str(producer.producer_epoch))
    assert run(kafka, capsys, "fence", producer.transactional_id, *of_it, *hang, "--yes")[0] == 0
    assert run(kafka, capsys, "abort", *hang, *yes)[0] == 0


def _start(cluster: Cluster, at: TopicPartition, producer: RawProducer) -> str:
    found = ClusterAdmin(cluster).read_partitions([at])[at].open_transaction(producer.producer_id)
    assert found is not None
    return str(found.start_offset)
