"""What `explain` says about transactional ids on a real broker: how the last transaction ended, and by whom."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace as with_changes

from support.answers import described, state_of
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import create_topic, delete_topic, unique
from support.waiting import eventually
from txnwatch.cli import explain_names
from txnwatch.cli.main import main
from txnwatch.state.model.transaction import TransactionState, UnknownTransactionalId
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.admin import transactions
from txnwatch.streaming.admin.transactions import ClusterAdmin, DescribedWithLog, described_with_log
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import read_records
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

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
    """The text of `explain`, as one line; no marker here is of an administrator."""

    def told(*arguments: str, code: int = 0) -> str:
        server = ("--bootstrap-server", quick.bootstrap_servers, "--format", "json")
        assert main(["explain", *arguments, *server]) == code
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert answer["rows"][0]["marker_by_hand"] is None, answer["rows"][0]["text"]
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
    name = producer.transactional_id
    assert "It is idle: it waits for nothing. Nothing of it is open on " in text
    assert f" Transactional id {name!r}: looks like Spring Kafka: prefix app-, " in text


def test_an_abort_of_an_old_client_is_its_own(cluster: Cluster, partition: TopicPartition, tell: Tell) -> None:
    producer = begun(cluster, partition)
    producer.end(commit=False)
    await_state(cluster, producer, S.COMPLETE_ABORT)
    assert "was aborted at " in (text := tell(producer.transactional_id))
    assert "its client ended it." in text
    assert "all clear" in tell(str(partition))


def test_an_abort_of_a_new_client_may_be_a_fence(cluster: Cluster, partition: TopicPartition, tell: Tell) -> None:
    producer = begun(cluster, partition, version=12)
    producer.end(commit=False, version=5)
    await_state(cluster, producer, S.COMPLETE_ABORT)
    assert "its client aborted it, or its coordinator did for a new InitProducerId" in tell(producer.transactional_id)
    assert "all clear" in tell(str(partition))


def test_an_abort_of_an_empty_transaction_hides_no_end(cluster: Cluster, partition: TopicPartition, tell: Tell) -> None:
    producer = begun(cluster, partition, version=12)
    producer.end(commit=True, version=5)
    await_state(cluster, producer, S.COMPLETE_COMMIT)
    producer.end(commit=False, version=5)
    await_state(cluster, producer, S.COMPLETE_ABORT)
    *_, committed, prepared, complete = (one.value for one in read_records(cluster, producer.transactional_id)[0])
    assert committed is not None
    assert prepared is not None
    assert complete is not None
    assert (prepared.state, prepared.partitions) == (S.PREPARE_ABORT, ())
    assert committed.start_ms != prepared.start_ms == complete.start_ms == prepared.last_update_ms
    assert "CompleteAbort. Its last transaction was committed at " in tell(producer.transactional_id)


def test_a_timeout_is_its_coordinators(cluster: Cluster, partition: TopicPartition, tell: Tell) -> None:
    producer = begun(cluster, partition, timeout_ms=TIMEOUT_MS)
    await_state(cluster, producer, S.COMPLETE_ABORT)
    assert "its coordinator aborted it at its timeout" in tell(producer.transactional_id)
    assert "all clear" in tell(str(partition))


def test_a_fence_is_named_although_the_id_is_empty_now(cluster: Cluster, partition: TopicPartition, tell: Tell) -> None:
    producer = begun(cluster, partition)
    RawProducer(cluster, producer.transactional_id).init()
    await_state(cluster, producer, S.EMPTY)
    text = tell(producer.transactional_id, "--fail-on-found")
    assert "all clear" in tell(str(partition))
    assert "It has not begun a transaction since its last InitProducerId at " in text
    assert "its coordinator aborted it for a new InitProducerId: the application has started again" in text


@pytest.mark.parametrize("version", [11, 12])
def test_a_client_that_asks_for_a_new_epoch_is_no_other_instance(
    cluster: Cluster, partition: TopicPartition, tell: Tell, version: int
) -> None:
    producer = begun(cluster, partition, version=version)
    producer.ask_for_a_new_epoch()
    text = tell(producer.transactional_id)
    assert "its own client asked for a new epoch (InitProducerId with its producer id and epoch)" in text
    assert "Two clients" not in text


@pytest.mark.parametrize("version", [11, 12])
def test_two_clients_of_one_id_are_told_while_its_transaction_is_open(
    cluster: Cluster, partition: TopicPartition, tell: Tell, version: int
) -> None:
    name = unique("app")
    for _ in range(12):
        producer = RawProducer(cluster, name).init()
        if version < 12:
            producer.add(partition)
        producer.produce(partition, version=version)
    text = tell(name, "--fail-on-found", code=3)
    assert text.startswith(f"{name}: Ongoing since ")
    assert "Two clients use this id, or one that starts again and again: 12 InitProducerIds in " in text
    assert "(epochs 0 to 22), and 11 transactions were aborted, each " in text


def test_an_id_that_has_begun_nothing_says_so(cluster: Cluster, tell: Tell) -> None:
    producer = RawProducer(cluster, unique("app")).init()
    assert "It has not begun a transaction since its last InitProducerId at " in tell(producer.transactional_id)


def test_the_partition_of_its_log_is_named_although_no_record_can_be_read(
    cluster: Cluster, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number follows from the id: that of the record is the same."""
    producer = RawProducer(cluster, unique("app")).init()
    records, _ = transactions.read_records_anywhere(cluster, producer.transactional_id)
    place = f"Its coordinator is broker 1, the leader of {TRANSACTION_STATE_TOPIC}-{records[-1].partition}."
    assert place in tell(producer.transactional_id)
    monkeypatch.setattr(transactions, "read_records_anywhere", lambda *_: ([], "READ is missing"))
    assert place in tell(producer.transactional_id, code=1)


IDS_EXPIRE_SOON = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="module")
def forgetful(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    directory = tmp_path_factory.mktemp("forgets")
    kafka = clusters.start("forgets", lambda: EmbeddedKafka(directory, properties=IDS_EXPIRE_SOON))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    yield kafka
    clusters.end("forgets")


def expired(cluster: Cluster, partition: TopicPartition) -> RawProducer:
    producer = begun(cluster, partition)
    producer.end(commit=True)
    name, admin = producer.transactional_id, ClusterAdmin(cluster)
    gone = UnknownTransactionalId
    eventually(lambda: isinstance(admin.describe_transactions([name])[name], gone), 30.0, f"{name} to expire")
    return producer


def test_an_expired_id_is_explained_by_its_name_and_by_its_producer_id(
    forgetful: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ("--bootstrap-server", forgetful.bootstrap_servers)
    with closing(connect(forgetful)) as cluster:
        (partition,) = create_topic(cluster, unique("orders"))
        producer = expired(cluster, partition)
        name, producer_id = producer.transactional_id, str(producer.producer_id)
        for target in ((name,), ("--transactional-id", name), (producer_id,)):
            assert main(["explain", *target, *server, "--fail-on-found"]) == 0
            text = capsys.readouterr().out
            assert f"{name}: no coordinator has this transactional id any more: it has expired" in text
            assert "Its tombstone is at __transaction_state-" in text
            assert "Its last transaction was committed at " in text
            assert f"It had producer id {producer_id}. Its application may start again at any time." in text
            assert "Nothing of it is open on " in text
        assert main(["list", "--producer-id", producer_id, *server]) == 0
        listed = capsys.readouterr().out
        assert f"Producer id {producer_id} was that of transactional id '{name}', which has expired" in listed
        producer.produce(partition, [b"too late"])
        assert main(["explain", name, *server, "--fail-on-found"]) == 3
        assert "HANGING" in capsys.readouterr().out


def test_a_producer_id_is_explained_by_its_transactional_id(
    cluster: Cluster, partition: TopicPartition, tell: Tell
) -> None:
    producer = begun(cluster, partition)
    text = tell(str(producer.producer_id), "--fail-on-found", code=3)
    assert text.startswith(
        f"{producer.producer_id} is the producer id of transactional id '{producer.transactional_id}'."
    )
    assert f"{producer.transactional_id}: Ongoing since " in text
    producer.end(commit=False)


def test_a_topic_is_explained_by_its_partitions(cluster: Cluster, tell: Tell) -> None:
    first, second = create_topic(cluster, unique("payments"), 2)
    assert "a topic with 2 partitions. Ask for a partition, for example " in (
        text := tell(first.topic, "--fail-on-found")
    )
    assert "All clear: no transaction is open on any of them." in text
    producer = begun(cluster, second)
    text = tell(first.topic, "--fail-on-found", code=3)
    assert f"open: {second} from offset " in text
    assert f"{first} from" not in text
    producer.end(commit=False)


def refused(quick: EmbeddedKafka, capsys: pytest.CaptureFixture[str], *target: str) -> str:
    assert main(["explain", *target, "--bootstrap-server", quick.bootstrap_servers]) == 1
    return capsys.readouterr().err


def test_a_partition_of_a_deleted_topic_is_named_as_such(
    quick: EmbeddedKafka, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (partition,) = create_topic(cluster, unique("gone"))
    producer = begun(cluster, partition)
    producer.end(commit=True)
    await_state(cluster, producer, S.COMPLETE_COMMIT)
    delete_topic(cluster, partition.topic)
    why = refused(quick, capsys, str(partition))
    assert f"topic {partition.topic} was deleted, and with it all that was open on it" in why
    assert f"transactional id '{producer.transactional_id}' had {partition} in a transaction at " in why


NAMES = {
    "nobody": "no topic, consumer group or transactional id has this name",
    "nobody-0": "topic nobody does not exist: it was deleted, or it never existed",
    "nobody-0@7": "topic nobody does not exist: it was deleted, or it never existed",
    "987654321": "No transactional id has producer id 987654321, and the coordinators' log names none",
}


@pytest.mark.parametrize(("name", "why"), NAMES.items(), ids=NAMES.keys())
def test_a_name_that_nothing_has(
    quick: EmbeddedKafka, cluster: Cluster, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    del cluster
    assert why in refused(quick, capsys, name)


@pytest.mark.parametrize("word", ["CONCURRENT_TRANSACTIONS", "InvalidTxnStateException", "NOT_COORDINATOR"])
def test_an_error_leads_to_a_command_that_works(
    quick: EmbeddedKafka, cluster: Cluster, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    RawProducer(cluster, unique("app")).init()
    assert main(["explain", word, "--bootstrap-server", quick.bootstrap_servers, "--fail-on-found"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{word}: an error or a state of a client; ")
    step = text.strip().splitlines()[-1].removeprefix("next: ")
    assert main(shlex.split(step)[1:]) == 0, capsys.readouterr().err


def test_an_id_with_the_name_of_an_error_is_an_id(cluster: Cluster, tell: Tell) -> None:
    RawProducer(cluster, "PRODUCER_FENCED").init()
    text = tell("PRODUCER_FENCED")
    assert text.startswith("PRODUCER_FENCED: Empty. It has not begun a transaction")
    assert "'PRODUCER_FENCED' is also a name of an error: PRODUCER_FENCED: another client " in text


@pytest.mark.parametrize("early", [1, 9], ids=["once", "at each look"])
def test_markers_that_come_while_it_looks_are_of_no_other_writer(
    cluster: Cluster, partition: TopicPartition, tell: Tell, monkeypatch: pytest.MonkeyPatch, early: int
) -> None:
    """The state is read first, and the partitions then: a decided transaction has got its own markers in between."""
    producer = begun(cluster, partition)
    now = described(ClusterAdmin(cluster), producer.transactional_id)
    decided = with_changes(now, state=TransactionState.PREPARE_COMMIT)
    producer.end(commit=True)
    looks = itertools.count(1)

    def with_log(at: Cluster, name: str) -> DescribedWithLog:
        found = described_with_log(at, name)
        return found._replace(described=decided) if next(looks) <= early else found

    monkeypatch.setattr(explain_names, "described_with_log", with_log)
    assert "marker of another writer" not in tell(producer.transactional_id)


def test_a_partition_above_the_last_one(
    quick: EmbeddedKafka, partition: TopicPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    why = refused(quick, capsys, f"{partition.topic}-7")
    assert f"topic {partition.topic} has only partition 0" in why


def test_a_group_that_nobody_has(quick: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    assert "consumer group nobody: no broker lists this group" in refused(quick, capsys, "--group", "nobody")
