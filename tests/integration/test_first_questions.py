"""What a person types first, the wrong way too, on each version of Kafka: the answer, the exit code, the next command.

Each case makes its own data, and asks by whatever name a person may have. What is printed as the next command is run as
it is printed. Law: what is said to be clear is clear: the leader has no open transaction there.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import NewPartitions

from support.kafka_faults import late_write_after_abort, stray_write
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import FAILOVER_S, admin_of, commit_an_offset, create_topic
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    DurationMs,
    TimestampMs,
    TopicPartition,
    coordinator_partition,
)
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import VERIFICATION

pytestmark = pytest.mark.long
VERSIONS = {"4.4.0": True, "4.3.1": True, "3.9.2": True, "3.3.2": False}  # whether brokers verify writes
LONG_MS = DurationMs(600_000)
CLEAR = {"all_clear", "idle"}


@dataclass
class Person:
    """Types commands.

    Attributes:
        told: how often each state was told.
    """

    kafka: EmbeddedKafka
    cluster: Cluster
    capsys: pytest.CaptureFixture[str]
    told: Counter[str] = field(default_factory=Counter)

    def types(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The answer; the exit code must be this one."""
        server = ("--bootstrap-server", self.kafka.bootstrap_servers, "--format", "json")
        found = main([*arguments, *(() if "--bootstrap-server" in arguments else server)])
        out, err = self.capsys.readouterr()
        assert found == code, (arguments, out, err)
        return json.loads(out) if out.startswith("{") else {"text": out + err, "rows": []}

    def explains(self, target: str, state: str, *says: str, code: int = 0) -> dict[str, Any]:
        """The row about a target: its state, and what its text has."""
        answer = self.types("explain", target, code=code)
        (row,) = answer["rows"]
        text = " ".join(row["text"])
        assert row["state"] == state, (target, text)
        assert all(one in text for one in says), (target, text)
        self.told[state] += 1
        if state in CLEAR:
            self._is_clear(target)
        return dict(row)

    def follows(self, target: str) -> None:
        """Runs what is printed as it is, and answers its question, until nothing is printed any more.

        Without a known outcome, it is first the command with --dry-run: that is run without it, too, by a person who
        accepts the unknown outcome.
        """
        for _ in range(4):
            (row,) = self.types("explain", target)["rows"]
            command, is_unknown = row["next"], row["expected_outcome"] == "unknown"
            if command is None:
                return
            for part in command.split(" && "):
                words = shlex.split(part)[1:]
                accepted = ("--accept-unknown-outcome",) if words[0] == "abort" and is_unknown else ()
                if "--dry-run" in words:
                    self.types(*words)
                    words.remove("--dry-run")
                self.types(*words, *accepted, *(("--yes",) if words[0] in {"abort", "fence"} else ()))
        pytest.fail(f"{target}: {command} is still printed")

    def refused(self, *arguments: str, says: str, code: int = 1) -> None:
        """A command that fails with a reason."""
        text = str(self.types(*arguments, code=code))
        assert says in text, (arguments, text)

    def _is_clear(self, target: str) -> None:
        self.cluster.refresh()
        named = [TopicPartition(name, 0) for name in self.cluster.known.topics if target.startswith(name)]
        for at, reading in ClusterAdmin(self.cluster).read_partitions(named).items():
            assert reading.last_stable_offset == reading.high_watermark, (target, at)


@pytest.fixture(scope="module", params=VERSIONS)
def asked_kafka(
    request: pytest.FixtureRequest, clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedKafka]:
    version = str(request.param)
    off = {VERIFICATION: "false"} if VERSIONS[version] else {}
    directory, name = tmp_path_factory.mktemp("asked"), f"asked-{version}"
    started = clusters.start(name, lambda: EmbeddedKafka(directory, version=version, properties=off))
    create_coordinators(started)
    yield started
    clusters.end(name)


@pytest.fixture
def person(asked_kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Iterator[Person]:
    with closing(connect(asked_kafka)) as cluster:
        yield Person(asked_kafka, cluster, capsys)


def topic(person: Person, name: str) -> TopicPartition:
    (created,) = create_topic(person.cluster, name)
    return created


def a_first_deployment(person: Person) -> None:
    at = topic(person, "first")
    stray_write(person.cluster, "first-writer", at)
    commit_an_offset(person.kafka, topic(person, "elsewhere"))
    servers = {"bootstrap.servers": person.kafka.bootstrap_servers, "group.id": "first-app"}
    with closing(Consumer({**servers, "enable.auto.commit": False, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([at.topic])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), 60.0, "the member to join")
        row = person.explains("first-app", "hanging", "of which it has committed nothing")
        for target in ("first", "first-0", "first-0@0", "first-writer"):
            assert person.explains(target, "hanging")["next"] == row["next"]
    person.follows("first-0")
    person.explains("first-0", "all_clear")


def a_late_write_of_an_idle_id(person: Person) -> None:
    producer = late_write_after_abort(person.cluster, "payments-7", topic(person, "pay"))
    for target in ("payments-7", str(producer.producer_id), "pay", "pay-0"):
        person.explains(target, "hanging")
    person.refused("explain", "pay-9", says="topic pay has only partition 0")
    person.explains("Payments-7", "hanging", "taken for transactional id 'payments-7'")
    wrong = ("--topic", "pay", "--partition", "0", "--start-offset", "0")
    person.refused("abort", *wrong, "--dry-run", says="found one from offset 2")
    person.follows("payments-7")
    person.explains("payments-7", "idle")


def a_group_behind_by_itself(person: Person) -> None:
    at = topic(person, "behind")
    producer = RawProducer(person.cluster, "behind-writer").init()
    producer.add(at)
    producer.produce(at, [b"x"] * 9)
    producer.end(commit=True)
    plain = RawProducer(person.cluster, "behind-writer").init()
    plain.produce(at, [b"y"] * 5, transactional=False)
    commit_an_offset(person.kafka, at, "slow", 9)
    person.explains("slow", "all_clear", "it has committed 9", "At 9 is a COMMIT marker", "it is behind by itself")


def two_clients_of_one_id(person: Person) -> None:
    at = topic(person, "storm")
    for _ in range(4):
        producer = RawProducer(person.cluster, "same").init()
        producer.add(at)
        producer.produce(at)
    person.explains("same", "open", "Two clients use this id, or one that starts again and again: 4 InitProducerIds")


def a_client_that_aborts_by_itself(person: Person) -> None:
    at = topic(person, "own")
    for _ in range(4):
        producer = RawProducer(person.cluster, "own-errors").init()
        producer.add(at)
        producer.produce(at)
        producer.end(commit=False)
    RawProducer(person.cluster, "own-errors").init()
    row = person.explains("own-errors", "contended", "each by the client itself, right before the next InitProducerId")
    assert "Two clients" not in " ".join(row["text"])


def an_abort_at_the_timeout(person: Person) -> None:
    at = topic(person, "timeout")
    producer = RawProducer(person.cluster, "timed-out", DurationMs(1_000)).init()
    producer.add(at)
    producer.produce(at)
    admin = ClusterAdmin(person.cluster)
    eventually(
        lambda: admin.read_partitions([at])[at].open_transaction(producer.producer_id) is None, FAILOVER_S, "the abort"
    )
    person.explains("timed-out", "idle", "its coordinator aborted it at its timeout")


def a_healthy_transaction(person: Person) -> None:
    at = topic(person, "healthy")
    producer = RawProducer(person.cluster, "app-1", LONG_MS).init()
    producer.add(at)
    producer.produce(at)
    row = person.explains("app-1", "open", "Ends by itself: yes")
    assert row["steps"][0]["text"].startswith("It needs nothing.")
    person.explains("healthy-0", "open")
    place = ("--topic", "healthy", "--partition", "0", "--start-offset", "0")
    person.refused("abort", *place, "--dry-run", says="it does not hang")
    person.follows("app-1")
    person.explains("app-1", "idle")
    person.explains("healthy-0", "all_clear")


def words_that_people_have(person: Person) -> None:
    line = (
        "org.apache.kafka.common.errors.TimeoutException: Timeout expired after 60000ms while awaiting InitProducerId"
    )
    for word in ("CONCURRENT_TRANSACTIONS", "producer fenced", "INVALID_PRODUCER_EPOCH(47)", "RESTORING", line):
        person.explains(word, "error_word")
    person.refused("explain", "nobody-has-this", says="such an id never existed, or it expired")


def texts_for_decode(person: Person) -> None:
    at = topic(person, "dumped")
    stray_write(person.cluster, "dumped-1", at)
    log = (
        "Initialized transactionalId dumped-1 with producerId 4 and producer epoch 0 on partition __transaction_state-2"
    )
    (row,) = person.types("decode", log)["rows"]
    assert "--transactional-id dumped-1 " in row["next"]
    segment = person.kafka.log_directory(1) / str(at) / f"{0:020}.log"
    (batch,) = person.types("decode", str(segment))["rows"]
    assert batch["kind"] == "transactional"
    person.refused("decode", "nothing-here", says="no file has this name", code=2)
    person.explains("dumped-1", "hanging")


def stamps_of_a_wrong_clock(person: Person) -> None:
    name = "x" * 4_000
    RawProducer(person.cluster, name, LONG_MS).init().produce(topic(person, "stamps"), timestamp_ms=TimestampMs(0))
    (found,) = person.types("find-hanging", "--topic", "stamps")["rows"]
    assert found["duration_ms"] < 3_600_000
    main(["find-hanging", "--topic", "stamps", "--bootstrap-server", person.kafka.bootstrap_servers])
    table = person.capsys.readouterr().out.splitlines()[:2]  # the command below it has the whole id
    assert max(map(len, table)) < 600


def more_partitions_of_the_log(person: Person) -> None:
    count = len(person.cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions)

    def is_moved(name: str) -> bool:
        return coordinator_partition(name, count) != coordinator_partition(name, 2 * count)

    at, name = topic(person, "moved"), next(filter(is_moved, (f"checkout-{number}" for number in range(99))))
    producer = RawProducer(person.cluster, name, LONG_MS).init()
    producer.add(at)
    producer.produce(at)
    admin = admin_of(person.cluster)
    admin.create_partitions([NewPartitions(TRANSACTION_STATE_TOPIC, 2 * count)])[TRANSACTION_STATE_TOPIC].result(15.0)
    person.kafka.stop()
    person.kafka.start()
    eventually(lambda: '"hanging"' in json.dumps(_now(person, name)), FAILOVER_S, "the hang")
    person.explains(name, "hanging", "(KAFKA-7771)", "An ABORT marker is right, unless its client was told")
    person.explains("moved-0", "hanging", "no coordinator finds its transactional id")
    person.refused("fence", name, "--dry-run", says="A fence would create the id again")
    person.follows("moved-0")
    person.explains("moved-0", "all_clear")


def _now(person: Person, name: str) -> list[Any]:
    main(["explain", name, "--bootstrap-server", person.kafka.bootstrap_servers, "--format", "json"])
    out = person.capsys.readouterr().out
    return list(json.loads(out)["rows"]) if out else []


CASES: list[Callable[[Person], None]] = [
    a_first_deployment,
    a_late_write_of_an_idle_id,
    a_group_behind_by_itself,
    two_clients_of_one_id,
    a_client_that_aborts_by_itself,
    an_abort_at_the_timeout,
    a_healthy_transaction,
    words_that_people_have,
    texts_for_decode,
    stamps_of_a_wrong_clock,
    more_partitions_of_the_log,  # the last one, because it restarts the brokers
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_answer_is_true_and_the_printed_command_works(case: Callable[[Person], None], person: Person) -> None:
    case(person)
