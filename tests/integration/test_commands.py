"""The commands on a real broker with real faults; what they suggest is pasted into a shell, and works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.answers import state_of
from support.kafka_faults import foreign_marker, late_write, stray_write
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end

Row = dict[str, Any]
Ask = Callable[..., list[Row]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A client properties file at a path that has to be quoted."""
    path = tmp_path / "my client.properties"
    path.write_text("security.protocol=PLAINTEXT\n")
    return path


@pytest.fixture
def ask(kafka: EmbeddedKafka, config: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A command's rows; everything must have been answered."""

    def asked(*arguments: str, code: int = 0) -> list[Row]:
        connection = ("--bootstrap-server", kafka.bootstrap_servers, "--command-config", str(config))
        assert main([*arguments, *connection, "--format", "json"]) == code
        answer = json.loads(capsys.readouterr().out)
        assert answer["complete"], answer["not_checked"]
        rows: list[Row] = answer["rows"]
        return rows

    return asked


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("asked"))
    return created


def pasted(command: str) -> subprocess.CompletedProcess[str]:
    """A command in a shell that has the console script on its PATH."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )


def opened(cluster: Cluster, partition: TopicPartition, timeout_ms: int = 600_000) -> RawProducer:
    producer = RawProducer(cluster, unique("app"), timeout_ms).init()
    producer.add(partition)
    producer.produce(partition)
    return producer


def test_an_empty_partition_is_all_clear(ask: Ask, partition: TopicPartition) -> None:
    (row,) = ask("explain", str(partition), "--fail-on-found")
    assert (row["state"], row["next"]) == ("all_clear", None)
    assert "all clear" in row["text"][0]


def test_an_open_transaction_is_explained_with_its_owner_and_its_end(
    ask: Ask, cluster: Cluster, partition: TopicPartition
) -> None:
    producer = opened(cluster, partition)
    (row,) = ask("explain", str(partition), "--fail-on-found", code=3)
    assert (row["state"], row["transactional_id"], row["ends_by_itself"]) == ("open", producer.transactional_id, "yes")
    assert row["ends_by_ms"] == row["since_ms"] + 600_000 + 10_000
    done = pasted(row["next"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{producer.transactional_id}: Ongoing since ")
    assert f"It holds {partition}; open data is on {partition}." in done.stdout


def test_a_hang_is_explained_with_its_reason_and_the_marker_that_is_right(
    ask: Ask, cluster: Cluster, partition: TopicPartition
) -> None:
    late = late_write(cluster, unique("late"), partition, commit=False)
    (row,) = ask("explain", str(partition))
    assert (row["state"], row["transactional_id"], row["ends_by_itself"]) == ("hanging", late.transactional_id, "no")
    assert "An ABORT marker is right" in " ".join(row["text"])
    fence, abort = row["next"].split(" && ")
    assert fence.startswith(f"txnwatch fence --transactional-id {row['transactional_id']} "), "its epoch is in use"
    assert abort.startswith(f"txnwatch abort --topic {partition.topic} --partition 0 --start-offset 2 ")


def test_no_abort_is_suggested_for_what_may_have_been_committed(
    ask: Ask, cluster: Cluster, partition: TopicPartition
) -> None:
    producer = RawProducer(cluster, unique("late")).init()
    for _ in range(2):  # two of one epoch: nobody can know whose the late write is
        producer.add(partition)
        producer.produce(partition)
        producer.end(commit=True)
        await_end(cluster, producer, partition)
    producer.produce(partition)
    (row,) = ask("explain", str(partition))
    assert row["state"] == "hanging"
    assert row["next"].endswith(" --dry-run")
    (found,) = ask("find-hanging", "--topic", partition.topic)
    assert found["expected_outcome"] == "unknown"
    done = pasted(found["next"])
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{partition}: HANGING." in done.stdout


def test_the_suggested_abort_works_after_a_restart_of_the_application(
    ask: Ask, cluster: Cluster, partition: TopicPartition
) -> None:
    producer = late_write(cluster, unique("late"), partition, commit=False)
    (row,) = ask("explain", str(partition))
    _, abort = row["next"].split(" && ")
    refused = pasted(f"{abort} --yes")
    assert (refused.returncode, "epoch_may_be_reused" in refused.stdout) == (5, True), refused
    asked = pasted(row["next"])
    assert (asked.returncode, "is fenced, and must start again" in asked.stderr) == (5, True), asked
    producer.init()
    nobody = pasted(row["next"])
    assert "fenced_before" in nobody.stdout, "the application that has started again is left alone"
    assert (nobody.returncode, "use --yes" in nobody.stderr) == (5, True), nobody
    done = pasted(f"{row['next']} --yes")
    assert (done.returncode, "verified" in done.stdout) == (0, True), done
    assert ask("find-hanging", "--topic", partition.topic) == []


Find = Callable[..., str]


@pytest.fixture
def find(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Find:
    def found(topic: str, *arguments: str, how: str = "json") -> str:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        assert main(["find-hanging", "--topic", topic, *arguments, *server, "--format", how]) == 0
        return capsys.readouterr().out

    return found


def test_spans_that_the_filters_of_find_hanging_leave_out_are_counted(
    cluster: Cluster, partition: TopicPartition, find: Find
) -> None:
    stray_write(cluster, unique("young"), partition)
    young = json.loads(find(partition.topic, "--max-transaction-timeout", "60"))
    assert {row["verdict"] for row in young["rows"]}.isdisjoint({"hanging"})
    assert [(kept["count"], kept["what"]) for kept in young["left_out"]] == [(1, "open span")]
    output = find(partition.topic, "--max-transaction-timeout", "60", how="text")
    assert (
        "left out: 1 open span: last written less than 60 minutes ago (--max-transaction-timeout), not eval" in output
    )
    assert "nothing hangs" not in output


@pytest.mark.long
def test_a_stuck_transaction_on_an_unselected_topic_is_counted(
    cluster: Cluster, partition: TopicPartition, find: Find
) -> None:
    (healthy,) = create_topic(cluster, unique("healthy"))
    prepared = opened(cluster, partition)
    foreign_marker(cluster, partition, prepared)
    prepared.end(commit=True)

    def elsewhere() -> list[int]:
        return [kept["count"] for kept in json.loads(find(healthy.topic))["left_out"]]

    eventually(elsewhere, 60.0, "the transaction on another topic to be stuck")
    output = find(healthy.topic, how="text")
    assert f"on none of the requested partitions (topic {healthy.topic})" in output
    assert f"nothing hangs, nothing is late or stuck on topic {healthy.topic}: 1 partition checked" in output


def test_a_copy_of_another_clusters_topic_is_not_judged(
    kafka: EmbeddedKafka, cluster: Cluster, partition: TopicPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its producer ids are those of another cluster, so they are unknown here."""
    stray_write(cluster, unique("copied"), partition)
    server = ("--bootstrap-server", kafka.bootstrap_servers)
    copies = ("--foreign-topics", re.escape(partition.topic))
    place = ("--topic", partition.topic, "--partition", "0")

    def told(*arguments: str, code: int | None = None) -> str:
        assert main([*arguments, *server]) in ({code} if code is not None else {0, 1})
        return "".join(capsys.readouterr())

    assert "1 hanging" in told("find-hanging", *place, code=0)
    named = told("find-hanging", *place, *copies, code=1)
    assert "nothing found" in named
    assert f"not checked: {partition} producer id" in named
    assert "foreign_topics" in named
    every = told("find-hanging", *copies, "--max-transaction-timeout", "9999999")
    assert "left out: 1 partition: its topic matches foreign_topics" in every
    explained = told("explain", *place, *copies, code=1)
    assert "a transaction is open, and its owner is not known" in explained
    assert "foreign_topics" in explained
    refused = told("abort", *place, "--start-offset", "0", "--dry-run", *copies, code=1)
    assert "foreign_topics" in refused
    assert "fence the id first" in told("abort", *place, "--start-offset", "0", "--dry-run", code=5), "it is judged"


def test_open_spans_after_the_first_are_reported(ask: Ask, cluster: Cluster, partition: TopicPartition) -> None:
    first = opened(cluster, partition)
    stray_write(cluster, unique("stray"), partition)
    (row,) = ask("explain", str(partition))
    assert (row["state"], row["transactional_id"], row["hidden_records"]) == ("open", first.transactional_id, 2)
    assert row["text"][-2].startswith("Also open, at a higher offset: HANGING, producer id ")
    assert row["text"][-1].startswith(f"Transactional id {first.transactional_id!r}: looks like Spring Kafka: ")


def test_a_refused_marker_is_explained(ask: Ask, cluster: Cluster, partition: TopicPartition) -> None:
    producer = opened(cluster, partition)
    foreign_marker(cluster, partition, producer)
    producer.end(commit=True)
    admin = ClusterAdmin(cluster)
    name = producer.transactional_id

    def is_prepared() -> bool:
        state = state_of(admin, name)
        return state is not None and state.is_prepare

    eventually(is_prepared, 10.0, "the outcome to be decided")
    (row,) = ask("explain", "--transactional-id", name)
    assert row["ends_by_itself"] == "unknown"
    ended = "waits for markers on 1 partition, but its data has ended there by a marker of another writer"
    assert ended in row["text"][3]
    (partition_row,) = ask("explain", str(partition))
    assert partition_row["state"] == "all_clear"


def test_an_idle_id_shows_how_its_last_transaction_ended(ask: Ask, cluster: Cluster, partition: TopicPartition) -> None:
    producer = opened(cluster, partition)
    producer.end(commit=True)
    name = producer.transactional_id

    def text() -> str:
        (row,) = ask("explain", name)
        return str(row["text"][0])

    eventually(lambda: "CompleteCommit. Its last transaction was committed at " in text(), 10.0, "its end")


def test_a_target_that_is_no_partition_and_no_id_is_a_failure(
    kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "nobody-0", "--bootstrap-server", kafka.bootstrap_servers]) == 1
    assert "nobody-0: topic nobody does not exist: it was deleted, or it never existed" in capsys.readouterr().err


def test_decode_shows_headers_markers_and_the_coordinators_records(
    ask: Ask, cluster: Cluster, partition: TopicPartition
) -> None:
    producer = opened(cluster, partition)
    producer.end(commit=True)
    where = ("--topic", partition.topic, "--partition", "0")
    eventually(lambda: len(ask("decode", *where)) == 2, 10.0, "the marker")
    data, marker = ask("decode", *where)
    assert (data["kind"], data["producer_id"], data["base_offset"]) == ("transactional", producer.producer_id, 0)
    assert (marker["kind"], marker["base_offset"], marker["coordinator_epoch"] >= 0) == ("COMMIT", 1, True)
    assert ask("decode", *where, "--offset", "1", "--count", "1") == [marker]
    records = ask("decode", "--transactional-id", producer.transactional_id)
    states = [record["transaction_state"] for record in records]
    assert states[:3] == ["Empty", "Ongoing", "PrepareCommit"]
    assert records[1]["topic_partitions"] == [str(partition)]


def test_decode_reads_a_brokers_segment_files(
    kafka: EmbeddedKafka, ask: Ask, cluster: Cluster, partition: TopicPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = opened(cluster, partition)
    records = ask("decode", "--transactional-id", producer.transactional_id)
    folder = kafka.log_directory(1) / f"__transaction_state-{records[0]['partition']}"
    assert main(["decode", "--file", str(folder / f"{0:020}.log"), "--count", "100000", "--format", "json"]) == 0
    from_file = json.loads(capsys.readouterr().out)["rows"]
    assert [row for row in from_file if row["transactional_id"] == producer.transactional_id] == records
    data = kafka.log_directory(1) / str(partition) / f"{0:020}.log"
    assert main(["decode", "--file", str(data), "--format", "json"]) == 0
    batches = json.loads(capsys.readouterr().out)["rows"]
    assert batches == ask("decode", "--topic", partition.topic, "--partition", "0")


def test_doctor_finds_nothing_missing_here(ask: Ask) -> None:
    rows = ask("doctor")
    assert [row for row in rows if row["status"] == "missing"] == []
    assert {row["subject"] for row in rows if row["needed_by"] == "run"} >= {"confluent-kafka", "java", "pyspark"}
    redis = ask("doctor", "--redis-url", "redis://127.0.0.1:1/0", code=1)
    assert [row["subject"] for row in redis if row["status"] == "missing"] == ["redis://127.0.0.1:1/0"]


def test_doctor_names_an_open_port_and_a_target_that_wants_no_more_events(ask: Ask, tmp_path: Path) -> None:
    push = tmp_path / "push.toml"
    push.write_text('[[webhook]]\nname = "pager"\nurl = "https://127.0.0.1:1/"\n')
    (tmp_path / "txnwatch-push-pager.jsonl").write_text('["stopped",1700000000000]\n')
    flags = ("--http-port", "9464", "--http-host", "0.0.0.0", "--push-file", str(push), "--checkpoint", str(tmp_path))
    rows = {row["check"]: row for row in ask("doctor", *flags, code=1)}
    assert (rows["push"]["status"], rows["http"]["status"]) == ("missing", "warning")
    assert rows["push"]["detail"].startswith("answered 410 at 2023-11-14 22:13:20")
    assert rows["http"]["subject"] == "0.0.0.0:9464"
