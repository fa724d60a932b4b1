"""SIGTERM ends `txnwatch run` within three seconds, whatever it does at that moment, and leaves no JVM behind.

`make stop-times` writes docs/stop-times.json.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer

from support.bad_servers import bad_server, stays_silent
from support.connections import until_spark_reaches
from support.forwarder import Forwarder
from support.hdfs import EmbeddedHdfs
from support.kafka_faults import late_write_after_abort
from support.metrics import Scrape
from support.quotas import CONSUMER_BYTE_RATE, quota
from support.stop_times import StopTimes
from support.topics import create_topic, unique
from support.upgrade import of_another_version
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.state_directory import REPLACES
from txnwatch_demo.embedded.applications import transactional_writer
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

RECORDS = 200_000
UNDER_LOAD = 5  # micro-batches
SLOW_BYTES_PER_S = 1_000
NO_BROKER = {"kill": "the broker is gone", "pause": "the broker accepts connections and does not answer"}
BACK_TO_BACK = ("--trigger-ms", "1")  # the next micro-batch is due before the last one has ended


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedHdfs]:
    with EmbeddedHdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture
def watch(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Callable[..., RunningWatch]]:
    with ExitStack() as running:

        def start(*flags: str) -> RunningWatch:
            events = ("--events-topic", unique("stopping.events"))
            return running.enter_context(RunningWatch(kafka.bootstrap_servers, tmp_path, *events, *flags))

        yield start


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("stopping"))
    return created


@contextmanager
def load(kafka: EmbeddedKafka, cluster: Cluster) -> Iterator[None]:
    topic = unique("stopping")
    create_topic(cluster, topic, 4)
    writers = [transactional_writer(kafka.bootstrap_servers, unique("w"), topic, pause_s=0.0) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        for writer in writers:
            writer.stop()


@pytest.mark.parametrize("after_s", [pytest.param(0.2, marks=pytest.mark.long), 3.0])
def test_while_spark_starts(watch: Callable[..., RunningWatch], stop_times: StopTimes, after_s: float) -> None:
    running = watch()
    running.until("checkpoint ")
    time.sleep(after_s)
    stop_times.stop(running, f"start of Spark, after {after_s} s")


def write(kafka: EmbeddedKafka, partition: TopicPartition) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 20})
    for number in range(RECORDS):
        producer.produce(partition.topic, partition=partition.partition, value=b"x")
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


@pytest.mark.long
def test_in_a_slow_micro_batch_of_the_first_reading(
    watch: Callable[..., RunningWatch],
    stop_times: StopTimes,
    kafka: EmbeddedKafka,
    cluster: Cluster,
    partition: TopicPartition,
) -> None:
    write(kafka, partition)
    with quota(cluster, CONSUMER_BYTE_RATE, SLOW_BYTES_PER_S):
        running = watch("--starting-offsets", "earliest", "--topics", partition.topic, "--http-port", "0")
        running.until("the current micro-batch has not completed for 15 s")
        stop_times.stop(running, "first reading of a start without a checkpoint, in a micro-batch throttled by a quota")


@pytest.mark.long
def test_in_the_first_reading(
    watch: Callable[..., RunningWatch], stop_times: StopTimes, kafka: EmbeddedKafka, partition: TopicPartition
) -> None:
    write(kafka, partition)
    flags = ("--starting-offsets", "earliest", "--topics", partition.topic, "--max-offsets-per-trigger", "100")
    running = watch(*flags, "--http-port", "0", *BACK_TO_BACK)
    eventually(lambda: batches(running) > 3, 120.0, "some micro-batches")
    assert (Scrape.at(running.metrics_url).value("source_lag_offsets") or 0) > 0
    stop_times.stop(running, "first reading of a start without a checkpoint, micro-batches without a pause")


def batches(running: RunningWatch) -> float:
    return Scrape.at(running.metrics_url).value("batches_total") or 0.0


@pytest.mark.long
def test_under_load_and_no_temporary_file_is_left(
    watch: Callable[..., RunningWatch],
    stop_times: StopTimes,
    kafka: EmbeddedKafka,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "temporary files"
    abandoned = temporary / "txnwatch-spark-died"
    abandoned.mkdir(parents=True)
    os.utime(abandoned, (0.0, 0.0))
    monkeypatch.setenv("TMPDIR", str(temporary))
    running = watch(*BACK_TO_BACK, "--http-port", "0").until_ready()
    with load(kafka, cluster):
        seen = batches(running)
        eventually(lambda: batches(running) >= seen + UNDER_LOAD, 60.0, "micro-batches under load")
        assert abandoned not in temporary.iterdir()
        assert list(temporary.glob("txnwatch-spark-*/blockmgr-*")), "Spark uses it"
        stop_times.stop(running, "under load, micro-batches without a pause")
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_while_redis_does_not_answer(
    watch: Callable[..., RunningWatch],
    stop_times: StopTimes,
    cluster: Cluster,
    redis_server: EmbeddedRedis,
    partition: TopicPartition,
) -> None:
    place = urlsplit(redis_server.url)
    with Forwarder((str(place.hostname), int(place.port or 0)), bytes_per_s=1 << 20) as forwarder:
        forwarder.start()
        running = watch("--redis-url", f"redis://{forwarder.address}/0").until_ready()
        forwarder.is_stalled.set()
        late_write_after_abort(cluster, unique("zombie"), partition)
        running.until("are kept and delivered later")
        stop_times.stop(running, "Redis accepts connections and does not answer")
        forwarder.is_stalled.clear()


@pytest.mark.long
def test_while_spark_stands_still(watch: Callable[..., RunningWatch], stop_times: StopTimes) -> None:
    """As in a long pause of its garbage collector: no call of Spark returns."""
    running = watch().until_ready()
    os.kill(running.jvm, signal.SIGSTOP)
    time.sleep(1.0)
    stop_times.stop(running, "Spark stands still, as in a long pause of its garbage collector")


@pytest.mark.long
@pytest.mark.parametrize("how", NO_BROKER)
def test_while_no_broker_answers(
    watch: Callable[..., RunningWatch], stop_times: StopTimes, kafka: EmbeddedKafka, how: str
) -> None:
    running = watch().until_ready()
    broker = kafka.broker(1)
    getattr(broker, how)()
    try:
        running.until("no broker of", timeout_s=60.0)
        stop_times.stop(running, NO_BROKER[how])
    finally:
        if how == "pause":
            broker.resume()
        else:
            kafka.start_broker(1)


@pytest.mark.long
def test_in_the_pause_before_the_next_attempt_to_start_the_query(
    watch: Callable[..., RunningWatch], stop_times: StopTimes, kafka: EmbeddedKafka
) -> None:
    running = watch()
    running.until("checkpoint ")
    kafka.broker(1).kill()
    try:
        running.until("; next attempt in 4 s", timeout_s=120.0)
        stop_times.stop(running, "the pause before the next attempt to start the query")
    finally:
        kafka.start_broker(1)


@pytest.mark.long
@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_while_a_reload_starts_the_query_again(
    watch: Callable[..., RunningWatch], stop_times: StopTimes, tmp_path: Path, after_s: float
) -> None:
    file = tmp_path / "txnwatch.toml"
    file.write_text("late_buffer_ms = 5000\n")
    running = watch("--config", str(file)).until_ready()
    file.write_text("late_buffer_ms = 6000\n")
    os.kill(running.pid, signal.SIGHUP)
    running.until("SIGHUP: reloaded late_buffer_ms, and the query starts again")
    time.sleep(after_s)
    stop_times.stop(running, f"a reload starts the query again, after {after_s} s")


@pytest.mark.long
def test_while_a_new_version_begins_its_state_and_the_next_start_begins_it_too(
    stop_times: StopTimes, kafka: EmbeddedKafka, hdfs: EmbeddedHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system stops answering before it is written that the state replaces another one."""
    flags, code = ("--events-topic", unique("stopping.events")), tmp_path / "other version"
    code.mkdir()
    real = urlsplit(hdfs.uri(""))
    running = RunningWatch(kafka.bootstrap_servers, hdfs.uri("begun"), *flags)
    with of_another_version(code, monkeypatch), running:
        running.until_ready()
        assert running.stop() == 0
    with Forwarder((str(real.hostname), real.port or 0), cut_at=REPLACES.encode()) as forwarder:
        forwarder.start()
        cut_off = f"hdfs://{forwarder.address}/begun"
        with RunningWatch(kafka.bootstrap_servers, cut_off, *flags, directory=tmp_path) as stopped:
            eventually(forwarder.is_cut.is_set, 120.0, "the beginning of the state")
            time.sleep(1.0)
            stop_times.stop(stopped, "a new version begins its state, and the file system stops answering")
    with running:
        running.until_ready()
        assert running.stop() == 0
    (line,) = (line for line in running.lines if "the state is rebuilt from the logs" in line)
    assert line.endswith("data is read from the last stable offsets")
    assert not [line for line in running.lines if "the query ended" in line]


@pytest.mark.long
def test_while_it_waits_for_the_lease_of_a_driver_that_was_killed(
    stop_times: StopTimes, kafka: EmbeddedKafka, hdfs: EmbeddedHdfs, tmp_path: Path
) -> None:
    flags = ("--events-topic", unique("stopping.events"))
    first = RunningWatch(kafka.bootstrap_servers, hdfs.uri("stopping"), *flags).start()
    try:
        first.until_ready()
    finally:
        first.kill()
    with RunningWatch(kafka.bootstrap_servers, hdfs.uri("stopping"), *flags, directory=tmp_path) as second:
        until_spark_reaches(second, urlsplit(hdfs.uri("")).port or 0)
        stop_times.stop(second, "waiting for the lease of a driver that was killed (checkpoint on HDFS)")
        assert not [line for line in second.lines if "taken over" in line], "it has waited until the stop"


@pytest.mark.long
def test_while_the_file_system_of_the_checkpoint_does_not_answer(
    stop_times: StopTimes, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    flags = ("--events-topic", unique("stopping.events"))
    with bad_server(stays_silent) as silent:
        checkpoint = f"hdfs://{silent}/stopping"
        with RunningWatch(kafka.bootstrap_servers, checkpoint, *flags, directory=tmp_path) as running:
            until_spark_reaches(running, silent.port)
            stop_times.stop(running, "the file system of the checkpoint accepts connections and does not answer")
