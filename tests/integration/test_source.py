"""`format("kafka-transactions")` in Spark itself: history by `spark.read`, facts by `spark.readStream`."""

from __future__ import annotations

import gc
import json
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bench.jvm_heap import live_instances
from support.answers import listed
from support.kafka_faults import late_write_after_abort
from support.process_memory import descendants
from support.raw_producer import CURRENT_TIMESTAMP, RawProducer
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.spark_start import SparkStart
from txnwatch.state.model.errors import QueryError
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.query import BatchErrors, JobSettings, start
from txnwatch.streaming.job.spark_conf import SessionSettings
from txnwatch.streaming.source.datasource import FORMAT
from txnwatch.streaming.source.options import spark_hash, state_keys
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BATCH_S = 60.0
BATCHES = 30
STREAMING = "org.apache.spark.sql.execution.streaming"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    (directory / "dependency").touch()  # with one, Spark uses local files before it has the settings of txnwatch
    settings = SessionSettings(
        str(directory), "local[2]", directory, conf={"spark.files": str(directory / "dependency")}
    )
    session = SparkStart(settings).session(directory / "spark.log")
    yield session
    session.stop()


@pytest.fixture
def history(cluster: Cluster) -> tuple[TopicPartition, RawProducer]:
    """A partition on which one transaction was committed, one aborted, and one hangs."""
    (partition,) = create_topic(cluster, unique("history"))
    producer = RawProducer(cluster, unique("history")).init()
    producer.add(partition)
    producer.produce(partition, [b"a", b"b"])
    producer.end(commit=True)
    eventually(lambda: listed(cluster, partition).offset == 3, 10.0, "the commit marker")
    hung = late_write_after_abort(cluster, unique("history"), partition)
    return partition, hung


@pytest.mark.long
def test_a_micro_batch_that_is_repeated_replaces_its_files_of_state(spark: SparkSession, tmp_path: Path) -> None:
    """Without an error Spark keeps those of the first run if the file system does not replace a file."""
    (tmp_path / "lines.txt").write_text("a\nb\n")

    def run() -> dict[str, int]:
        counted = spark.readStream.text(str(tmp_path / "*.txt")).groupBy("value").count()
        writing = counted.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        assert writing.option("checkpointLocation", str(checkpoint)).start().awaitTermination(BATCH_S)
        return {str(file): file.stat().st_ino for file in checkpoint.glob("state/0/*/*.changelog")}

    checkpoint = tmp_path / "checkpoint"
    first = run()
    for file in (checkpoint / "commits").iterdir():
        file.unlink()  # as if the process had been killed before the end of the micro-batch
    second = run()
    assert second.keys() == first.keys() != set()
    assert not [file for file, number in first.items() if second[file] == number]
    assert not list(checkpoint.glob("state/0/*/.*.tmp"))


def test_spark_gives_each_partition_of_the_state_one_of_sixteen_buckets(spark: SparkSession) -> None:
    rows = [(key,) for key in (*state_keys(16, 16), *range(1_000, 1_100))]
    frame = spark.createDataFrame(rows, "bucket INT").selectExpr("bucket", "hash(bucket) AS hashed")
    assert [(row["bucket"], row["hashed"]) for row in frame.collect()] == [(key, spark_hash(key)) for (key,) in rows]
    buckets = frame.where("bucket < 1000").repartition(16, "bucket")
    assert sorted(len(rows) for rows in buckets.rdd.glom().collect()) == [1] * 16


def read(spark: SparkSession, kafka: EmbeddedKafka, topic: str, **options: str) -> DataFrame:
    frame: DataFrame = (
        spark.read.format(FORMAT)
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .options(**options)
        .load()
    )
    return frame


def test_history_has_every_finished_transaction(
    spark: SparkSession, kafka: EmbeddedKafka, history: tuple[TopicPartition, RawProducer]
) -> None:
    partition, _ = history
    rows = read(spark, kafka, partition.topic, startingOffsets="earliest", episodes="true").collect()
    kinds = Counter(row["kind"] for row in rows)
    assert kinds == {"finished_transaction": 2, "read_range": 1}
    finished = [row["finished_transaction"] for row in rows if row["finished_transaction"] is not None]
    found = [one["episode"] for one in finished]
    ends = [(one["start_offset"], one["marker"]["offset"], one["marker"]["commit"]) for one in found]
    assert sorted(ends) == [(0, 2, True), (3, 4, False)]
    assert len({one["transactional_id"] for one in finished} - {None}) == 2
    for one in finished:
        first_ms, marker = one["episode"]["first_timestamp_ms"], one["episode"]["marker"]
        assert one["open_ms"] == marker["timestamp_ms"] - first_ms
    (whole,) = [row["read_range"] for row in rows if row["kind"] == "read_range"]
    assert (whole["from_offset"], whole["to_offset"], whole["open_from"]) == (0, 6, 5), "the late write is open"


def test_a_batch_read_returns_what_is_open_and_its_owner(
    spark: SparkSession, kafka: EmbeddedKafka, history: tuple[TopicPartition, RawProducer]
) -> None:
    partition, hung = history
    facts = read(spark, kafka, partition.topic, startingOffsets="earliest")
    (row,) = facts.filter(f"producer_seen.producer_id = {hung.producer_id}").collect()
    seen = row["producer_seen"]
    assert (seen["open_offset"], seen["last_marker"]["offset"], seen["last_marker"]["commit"]) == (5, 4, False)
    assert row["bucket"] == hung.producer_id % 16
    assert facts.filter("kind = 'barrier'").count() == 16


def test_a_batch_read_ends_at_the_given_offset(
    spark: SparkSession, kafka: EmbeddedKafka, history: tuple[TopicPartition, RawProducer]
) -> None:
    partition, hung = history
    ends = json.dumps({partition.topic: {"0": 5}})
    facts = read(spark, kafka, partition.topic, startingOffsets="earliest", endingOffsets=ends)
    (row,) = facts.select("producer_seen.*").filter(f"producer_id = {hung.producer_id}").collect()
    assert row["open_offset"] is None


def programs(page: str, kafka: EmbeddedKafka, partition: TopicPartition) -> list[str]:
    """The programs of a page, for the broker and the topic of the test."""
    found = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    topic = partition.topic
    codes = (code.replace("broker:9092", kafka.bootstrap_servers).replace("payments.*", topic) for code in found)
    return [code.replace('"payments"', f'"{topic}"') for code in codes]


def test_the_programs_of_the_pages_about_the_source_run(
    spark: SparkSession, kafka: EmbeddedKafka, history: tuple[TopicPartition, RawProducer], tmp_path: Path
) -> None:
    partition, hung = history
    (readme,) = programs(README.partition("## For Spark users")[2].partition("\n## ")[0], kafka, partition)
    batch, stream = programs((ROOT / "docs" / "spark-source.md").read_text(), kafka, partition)
    names: dict[str, Any] = {"spark": spark}
    exec(readme, names)
    assert names["finished"].count() == 2
    exec(batch, names)
    assert sorted(row["marker"]["commit"] for row in names["ended"].collect()) == [False, True]
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    exec(stream, names)
    try:
        found = "SELECT producer_id, open_offset FROM open_now"
        eventually(lambda: (hung.producer_id, 5) in map(tuple, spark.sql(found).collect()), BATCH_S, "the open span")
    finally:
        names["query"].stop()
        spark.conf.unset("spark.sql.streaming.checkpointLocation")


HISTORY_PAGE = (Path(__file__).parents[2] / "docs" / "spark-history.md").read_text()


def test_the_table_of_the_history_has_each_transaction_once_and_answers_the_questions(
    spark: SparkSession, kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    program, view = re.findall(r"^```python\n(.*?)^```", HISTORY_PAGE, flags=re.MULTILINE | re.DOTALL)
    questions = re.findall(r"^```sql\n(.*?)^```", HISTORY_PAGE, flags=re.MULTILINE | re.DOTALL)
    topic = create_topic(cluster, unique("kept"), 2)
    program = program.replace("broker:9092", kafka.bootstrap_servers).replace('"payments"', f'"{topic[0].topic}"')
    names: dict[str, Any] = {"spark": spark}

    def run() -> list[tuple[int, int, str]]:
        exec(program.replace("/data/", f"{tmp_path}/"), names)
        exec(view, names)
        found = spark.sql("SELECT partition, marker_offset, transactional_id FROM transactions").collect()
        return sorted(map(tuple, found))

    app, other = unique("app"), unique("other")
    one, slow = RawProducer(cluster, f"{app}-1").init(), RawProducer(cluster, f"{other}-1", 600_000).init()
    _in_transaction(slow, topic[0], timestamp_ms=wall_clock_ms() - 60_000)
    _in_transaction(one, topic[0])
    one.end(commit=True)
    eventually(lambda: listed(cluster, topic[0]).offset == 3, 10.0, "the commit marker")
    assert run() == [(0, 2, f"{app}-1")], "one is open at the end of this run"
    slow.end(commit=False)
    _in_transaction(two := RawProducer(cluster, f"{app}-2").init(), topic[1])
    two.end(commit=False)
    eventually(
        lambda: listed(cluster, topic[0]).offset == 4 and listed(cluster, topic[1]).offset == 2, 10.0, "the markers"
    )
    expected = [(0, 2, f"{app}-1"), (0, 3, f"{other}-1"), (1, 1, f"{app}-2")]
    assert run() == expected
    assert run() == expected, "nothing is new"
    longest, aborted, held = (spark.sql(question).collect() for question in questions)
    assert (longest[0]["transactional_id"], len(longest)) == (f"{other}-1", 3)
    assert longest[0]["longest_ms"] >= 60_000
    assert {tuple(row) for row in aborted} == {(app, 1, 2), (other, 1, 1)}
    assert [(row["partition"], row["longest_ms"] >= 60_000) for row in held] == [(0, True), (1, False)]


def _in_transaction(producer: RawProducer, partition: TopicPartition, timestamp_ms: int = CURRENT_TIMESTAMP) -> None:
    producer.add(partition)
    producer.produce(partition, timestamp_ms=timestamp_ms)


@pytest.mark.long
def test_planning_leaves_no_process_behind_and_tasks_keep_their_workers(
    spark: SparkSession, kafka: EmbeddedKafka, history: tuple[TopicPartition, RawProducer], tmp_path: Path
) -> None:
    partition, hung = history
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": partition.topic}
    settings = JobSettings(options, str(tmp_path), 200, DetectionPolicy())
    before, batches = _processes("pyspark.sql.worker."), list[tuple[int, list[Finding]]]()

    def take(number: int, emitted: list[Finding]) -> None:
        batches.append((number, emitted))

    for _ in range(2):  # the second start plans again
        seen, query = len(batches), start(spark, settings, take)
        eventually(lambda seen=seen: len(batches) >= seen + 2, BATCH_S, "two micro-batches")
        query.stop()
    eventually(lambda: _processes("pyspark.sql.worker.") <= before, 10.0, "the planning processes to end")
    workers = _processes("pyspark.worker")
    assert workers, "they keep connections and state from task to task"
    assert len([pid for pid in workers if _parent(pid) not in workers]) == 1, "source and operator share one daemon"
    reported = [found for _, emitted in batches for found in emitted if isinstance(found, SpanCandidate)]
    assert {found.producer_id for found in reported} == {hung.producer_id}


@pytest.mark.long
def test_the_jvm_forgets_the_plan_of_a_micro_batch_before_python_collects_garbage(
    spark: SparkSession, kafka: EmbeddedKafka, history: tuple[TopicPartition, RawProducer], tmp_path: Path
) -> None:
    partition, _ = history
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribePattern": partition.topic}
    settings, batches = JobSettings(options, str(tmp_path), 1, DetectionPolicy()), list[int]()
    (jvm,) = _processes("org.apache.spark.deploy.SparkSubmit")
    plan = f"{STREAMING}.state.StateStoreRDD"
    gc.disable()
    query = start(spark, settings, lambda number, _: batches.append(number))
    try:
        eventually(lambda: len(batches) >= BATCHES, 3 * BATCH_S, "the micro-batches")
        kept_while_running = live_instances(jvm, plan)
        query.stop()
        eventually(lambda: live_instances(jvm, plan) < BATCHES / 3, 10.0, "the end of the plans")
    finally:
        gc.enable()
        query.stop()
    assert kept_while_running > 0, "the class has this name"


def test_a_stop_completes_the_micro_batch_that_runs_and_lets_no_other_begin(
    spark: SparkSession, kafka: EmbeddedKafka, history: tuple[TopicPartition, RawProducer], tmp_path: Path
) -> None:
    partition, _ = history
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribePattern": partition.topic}
    settings, stopping, batches = JobSettings(options, str(tmp_path), 1, DetectionPolicy()), threading.Event(), []

    def take(number: int, _: list[Finding]) -> None:
        batches.append(number)
        stopping.set()

    errors = BatchErrors()
    query = start(spark, settings, take, stopping.is_set, errors)
    eventually(lambda: not query.isActive, BATCH_S, "the end of the query")
    assert "is left to the next start" in str(query.exception())
    assert isinstance(errors.last, QueryError), "the driver has the error itself, and not only its text"
    assert batches == [0]
    assert sorted(file.name for file in (tmp_path / "commits").glob("[0-9]*")) == ["0"]


def _processes(text: str) -> set[int]:
    """Those below this process that have a text in their command, for example the name of a module."""
    found = set()
    for pid in descendants(os.getpid()):
        with suppress(OSError):  # it has ended meanwhile
            if text in Path(f"/proc/{pid}/cmdline").read_text():
                found.add(pid)
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_latest_begins_where_the_oldest_open_transaction_does(
    spark: SparkSession, kafka: EmbeddedKafka, history: tuple[TopicPartition, RawProducer]
) -> None:
    partition, hung = history
    rows = read(spark, kafka, partition.topic).filter("kind = 'producer_seen'").select("producer_seen.*").collect()
    assert [(row["producer_id"], row["range_start"], row["open_offset"]) for row in rows] == [(hung.producer_id, 5, 5)]


def test_a_stream_picks_up_new_topics_and_partitions_and_raises_a_barrier_each_time(
    spark: SparkSession, kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    prefix = unique("stream")
    create_topic(cluster, f"{prefix}-before")
    seen: list[dict[str, Any]] = []

    def reported(kind: str) -> list[dict[str, Any]]:
        return [row[kind] for row in seen if row["kind"] == kind]

    def take(frame: DataFrame, _: int) -> None:
        seen.extend(row.asDict(recursive=True) for row in frame.collect())

    query = (
        spark.readStream.format(FORMAT)
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribePattern", f"{prefix}-.*")
        .option("metadataRefreshMs", "500")
        .option("buckets", "1")
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        eventually(lambda: any(row["kind"] == "barrier" for row in seen), BATCH_S, "the first barrier")
        (late,) = create_topic(cluster, f"{prefix}-after")
        producer = RawProducer(cluster, unique("stream")).init()
        producer.add(late)
        producer.produce(late)
        rows = eventually(
            lambda: [found for found in reported("producer_seen") if found["partition"]["topic"] == late.topic],
            BATCH_S,
            "data of a topic made later",
        )
        assert rows[0]["range_start"] == 0
        assert rows[0]["open_offset"] == 0
        views = [found["view"] for found in reported("transaction_seen")]
        states = [view["state"] for view in views if view["transactional_id"] == producer.transactional_id]
        assert states[-1] == "Ongoing"
    finally:
        query.stop()
    barriers = [found["number"] for found in reported("barrier")]
    assert barriers == list(range(1, len(barriers) + 1))


def test_a_stream_continues_at_the_end_of_its_checkpoint(
    spark: SparkSession, kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    (partition,) = create_topic(cluster, unique("resume"))
    producer = RawProducer(cluster, unique("resume")).init()
    ranges: list[tuple[int, int]] = []

    def take(frame: DataFrame, _: int) -> None:
        rows = frame.filter("kind = 'producer_seen'").select("producer_seen.*").collect()
        ranges.extend((row["range_start"], row["range_end"]) for row in rows)

    def run_once() -> None:
        (
            spark.readStream.format(FORMAT)
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", partition.topic)
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
            .awaitTermination(BATCH_S)
        )

    _in_transaction(producer, partition)
    run_once()
    producer.produce(partition, [b"1", b"2"])
    run_once()
    assert ranges == [(0, 1), (1, 3)]


def test_an_unknown_option_is_an_error_that_names_it(spark: SparkSession, kafka: EmbeddedKafka) -> None:
    with pytest.raises(Exception, match="option 'subscribepatern' is not known"):
        read(spark, kafka, "x", subscribePatern="y").collect()


def test_a_closed_port_is_an_error_of_a_batch_read(spark: SparkSession, kafka: EmbeddedKafka) -> None:
    with pytest.raises(Exception, match="no broker answered"):
        read(spark, kafka, "x", **{"kafka.bootstrap.servers": "127.0.0.1:1"}).collect()
