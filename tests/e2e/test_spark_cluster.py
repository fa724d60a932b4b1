"""On a standalone cluster with two workers that share no directory, and a checkpoint on HDFS."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import NamedTuple

import pytest

from support.cluster_times import ClusterTimes
from support.fast_writer import Load, writing
from support.hdfs import EmbeddedHdfs
from support.kafka_faults import late_write_after_abort
from support.spark_cluster import SECRET, SparkCluster
from support.spark_submit import driver_of, submit
from support.topics import create_topic, unique
from support.upgrade import Upgrade
from support.waiting import eventually
from support.watch import RunningWatch, events_about, events_of, statuses
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.applications import transactional_writer
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
EVENTS = "cluster.events"
# Each commits a transaction and begins the next one in every second.
PRODUCERS, BUSY_PARTITIONS = 500, 4
LEAST_A_SECOND = 100.0  # on two cores that all these servers share
VERDICT_S = 180.0
ENDS_S = 240.0
STOPS_S = 3.0
CLEAN_S = 60.0


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedHdfs]:
    with EmbeddedHdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("spark"), workers=2) as started:
        yield started


class Busy(NamedTuple):
    """Producers that write all the time; `written`: how many transactions they have committed.

    The transactional id of each begins with the name of the topic.
    """

    topic: str
    written: Synchronized[int]

    @contextmanager
    def keeps_writing(self) -> Iterator[None]:
        """They do, in this block."""
        before, begun = self.written.value, time.monotonic()
        yield
        assert (self.written.value - before) / (time.monotonic() - begun) > LEAST_A_SECOND


@pytest.fixture
def busy(kafka: EmbeddedKafka, cluster: Cluster) -> Iterator[Busy]:
    topic = create_topic(cluster, unique("busy"), BUSY_PARTITIONS)[0].topic
    places = tuple((number % BUSY_PARTITIONS,) for number in range(PRODUCERS))
    load = Load(int(kafka.bootstrap_servers.rpartition(":")[2]), topic, places, PRODUCERS, commits=True)
    with writing(load) as written:
        aborts_too = transactional_writer(kafka.bootstrap_servers, f"{topic}-writer", topic, pause_s=0.05).start()
        yield Busy(topic, written)
        aborts_too.stop()
        assert aborts_too.error is None


def hang(cluster: Cluster, partition: TopicPartition) -> None:
    late_write_after_abort(cluster, unique("zombie"), partition)


def left_by_executors(spark: SparkCluster) -> list[Path]:
    """What executors have left in the directories for temporary files; a running worker has one for itself there."""
    return [path for worker in range(2) for path in spark.scratch(worker).glob("*/*")]


def until_opened(kafka: EmbeddedKafka, partition: TopicPartition) -> None:
    found = lambda: events_about(kafka.bootstrap_servers, partition, EVENTS)  # noqa: E731 - a condition to wait for
    assert eventually(found, VERDICT_S, f"an incident about {partition}")[0].verdict == "hanging"


def test_executors_and_the_driver_are_killed_and_nothing_is_lost_or_repeated(
    kafka: EmbeddedKafka,
    cluster: Cluster,
    hdfs: EmbeddedHdfs,
    spark: SparkCluster,
    busy: Busy,
    tmp_path: Path,
    cluster_times: ClusterTimes,
) -> None:
    config = tmp_path / "txnwatch.toml"
    config.write_text(f'[spark_conf]\n"spark.authenticate.secret" = "{SECRET}"\n"spark.executor.memory" = "700m"\n')
    conf = ("spark.driver.host=127.0.0.1", f"spark.local.dir={tmp_path / 'driver'}")
    flags = ("--events-topic", EVENTS, "--master", spark.master, "--state-partitions", "2", "--config", str(config))
    flags = (*flags, *(part for one in conf for part in ("--spark-conf", one)))
    checkpoint = hdfs.uri("txnwatch")
    partitions = [create_topic(cluster, unique("hung"))[0] for _ in range(3)]
    watched = "|".join(one.topic for one in (*partitions, busy))
    flags = (*flags, "--topics", watched, "--census-topics", watched)

    def found_in(step: str, partition: TopicPartition) -> None:
        with busy.keeps_writing(), cluster_times.of(step):
            hang(cluster, partition)
            until_opened(kafka, partition)

    first = RunningWatch(kafka.bootstrap_servers, checkpoint, *flags)
    try:
        with cluster_times.of("1. start of a driver with an empty checkpoint, until `ready`"):
            first.start().until_ready()
        assert left_by_executors(spark), "they use these directories"
        found_in("2. a hang, until its event is on the topic", partitions[0])

        spark.executor(0).kill()
        found_in("3. a hang right after `kill -9` of one of the two executors, until its event", partitions[1])

        with cluster_times.of("4. start of a second driver with the same checkpoint, until it ends with one line"):
            second = subprocess.run(first.command, capture_output=True, text=True, check=False, timeout=ENDS_S)
        assert "is in use by process" in second.stderr
        assert second.returncode == 1
    finally:
        first.kill()

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with RunningWatch(kafka.bootstrap_servers, checkpoint, *flags, directory=elsewhere) as taken_over:
        with cluster_times.of("5. start of another driver after `kill -9` of the driver, until `ready`"):
            taken_over.until("has not renewed its lease of the checkpoint")
            taken_over.until_ready()
        found_in("6. a hang after this takeover, until its event", partitions[2])
        begun = time.monotonic()
        with cluster_times.of("7. a stop with SIGTERM"):
            assert taken_over.stop() == 0
        assert time.monotonic() - begun < STOPS_S
    eventually(lambda: left_by_executors(spark) == [], CLEAN_S, lambda: f"no file, but: {left_by_executors(spark)}")
    for partition in partitions:
        assert statuses(events_about(kafka.bootstrap_servers, partition, EVENTS)) == ["opened"]
    found = events_of(kafka.bootstrap_servers, EVENTS)
    ours = [one for one in found if one.topic is not None or (one.transactional_id or "").startswith(busy.topic)]
    named = {TopicPartition(one.topic, one.partition) for one in ours}  # other tests leave transactions open
    assert named == {*partitions}, "no false verdict"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ("--master", "spark://nowhere:7077", "--checkpoint", "hdfs://127.0.0.1:9/x"),
            "no connection to the master nowhere:",
        ),
        (("--checkpoint", "hdfs://nowhere.invalid:8020/x"), "the file system of --checkpoint cannot be used"),
    ],
    ids=["no master", "no host"],
)
def test_a_master_or_file_system_without_an_answer_ends_the_start_with_one_line(
    kafka: EmbeddedKafka, flags: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    command = RunningWatch(kafka.bootstrap_servers, tmp_path, "--events-topic", EVENTS, *flags).command
    conf = ("--spark-conf", "spark.authenticate.secret=kanarienvogel")
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*command, *conf], capture_output=True, text=True, check=False, timeout=ENDS_S, env=environ)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert expected in done.stderr
    assert done.returncode == 1


def test_the_state_of_another_version_on_hdfs_is_replaced_and_no_event_is_lost_or_repeated(
    kafka: EmbeddedKafka, cluster: Cluster, hdfs: EmbeddedHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade = Upgrade(kafka, cluster, hdfs.uri("upgrade"), directory=tmp_path, verdict_s=VERDICT_S)
    upgrade.run_the_other_version(tmp_path, monkeypatch)
    upgrade.run_this_version()


def test_spark_submit_runs_it_from_the_wheel_as_a_zip(
    kafka: EmbeddedKafka, cluster: Cluster, hdfs: EmbeddedHdfs, spark: SparkCluster, tmp_path: Path
) -> None:
    python = without_txnwatch(tmp_path / "python")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, timeout=ENDS_S)
    (wheel,) = tmp_path.glob("txnwatch-*.whl")
    archive = wheel.rename(tmp_path / "txnwatch.zip")
    (partition,) = create_topic(cluster, unique("submitted"))
    own = ("--topics", partition.topic, "--census-topics", partition.topic, "--events-topic", EVENTS)
    submitted = submit(
        RunningWatch(kafka.bootstrap_servers, hdfs.uri("submitted"), *own),
        python,
        *("--master", spark.master, "--py-files", str(archive)),
        *("--conf", f"spark.authenticate.secret={SECRET}"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=700m"),
    )
    with submitted:
        submitted.until_ready()
        hang(cluster, partition)
        until_opened(kafka, partition)
        driver_of(submitted).terminate()
        assert submitted.wait() == 0


def without_txnwatch(directory: Path) -> Path:
    """A Python with all dependencies, but without txnwatch: an entry of a .pth file does not install others."""
    venv.create(directory, with_pip=False)
    (site,) = directory.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = directory / "bin" / "python"
    found = subprocess.run([str(python), "-c", "import txnwatch"], capture_output=True, check=False, cwd=directory)
    assert found.returncode != 0
    return python
