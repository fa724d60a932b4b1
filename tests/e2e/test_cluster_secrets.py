"""On a Spark cluster: no directory, log, page or process of Spark has a secret of Kafka, Redis or a file system.

Nor has the checkpoint. The broker and Redis check the passwords, and the broker refuses the login for a while. A text
that is no secret is found by each search, so each search reads the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.canaries import Canaries, family
from support.hdfs import EmbeddedHdfs
from support.logged_in_redis import LoggedInRedis
from support.secured_kafka import flags_of, hang, start_secured
from support.servers import Clusters
from support.spark_cluster import SECRET as SPARK_SECRET
from support.spark_cluster import SparkCluster, arguments
from support.spark_pages import SparkPages
from support.waiting import eventually
from support.watch import RunningWatch
from support.ways import SECRET, Broker
from txnwatch_demo.embedded.real_servers import free_ports

pytestmark = pytest.mark.long
NAME = "cluster-secrets"
USER, REDIS, STORE = "me", "kanarienvogel-redis", "kanarienvogel-store"
KNOWN = "known-to-executors"
VERDICT_S = 180.0


class Ran(NamedTuple):
    """A watch on a cluster, which is still running.

    Attributes:
        driver: the address of the driver's web server.
        known: a search for the topic of an incident.
    """

    watch: RunningWatch
    spark: SparkCluster
    driver: str
    hdfs: Path
    temporary: Path
    redis_values: dict[str, str]
    known: Canaries


CANARIES = Canaries(SECRET, REDIS, STORE)


def write_config(directory: Path, redis_port: int, pages_port: int) -> Path:
    path = directory / "txnwatch.toml"
    path.write_text(
        f'redis_url = "redis://{USER}:${{env:REDIS}}@127.0.0.1:{redis_port}/0"\n[spark_conf]\n'
        f'"spark.authenticate.secret" = "{SPARK_SECRET}"\n"spark.executor.memory" = "700m"\n'
        f'"spark.hadoop.fs.store.whatever" = "{STORE}"\n'
        f'"spark.driver.host" = "127.0.0.1"\n"spark.executorEnv.A_VARIABLE" = "{KNOWN}"\n'
        f'"spark.executor.extraJavaOptions" = "-Da.property={KNOWN}"\n'
        f'"spark.ui.enabled" = "true"\n"spark.ui.port" = "{pages_port}"\n'
    )
    return path


@pytest.fixture(scope="module")
def ran(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    directory = tmp_path_factory.mktemp(NAME)
    temporary = directory / "temporary"
    temporary.mkdir()
    broker = Broker(directory)
    kafka = start_secured(clusters, broker, NAME)
    try:
        with (
            broker.tokens,
            EmbeddedHdfs(directory / "hdfs") as hdfs,
            SparkCluster(directory / "spark", workers=1) as spark,
            LoggedInRedis(directory, USER, REDIS) as redis,
            pytest.MonkeyPatch.context() as patched,
        ):
            (pages_port,) = free_ports(1)
            config = write_config(directory, redis.port, pages_port)
            for name, value in {"REDIS": REDIS, "TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1"}.items():
                patched.setenv(name, value)
            bootstrap, *login = flags_of(kafka, broker.ways()["SCRAM-SHA-512"], directory)[1:]
            flags = [*login, "--config", str(config), "--master", spark.master, "--state-partitions", "1"]
            with RunningWatch(bootstrap, hdfs.uri("txnwatch"), *flags, "--events-topic", "cluster-secrets") as watch:
                watch.until_ready()

                def until_shown() -> str:
                    topic = hang(kafka)[0].topic
                    eventually(lambda: topic in repr(redis.values()), VERDICT_S, lambda: f"Redis: {watch.lines[-5:]}")
                    return topic

                topic = until_shown()
                broker.remove_users(kafka)
                spark.executor(0).kill()
                watch.until("SASL", timeout_s=VERDICT_S)
                broker.add_users(kafka)
                until_shown()
                driver = f"http://127.0.0.1:{pages_port}"
                yield Ran(watch, spark, driver, directory / "hdfs", temporary, redis.values(), Canaries(topic))
    finally:
        clusters.end(NAME)


@pytest.mark.parametrize("server", ["master", "worker-0"])
def test_no_log_and_no_directory_of_spark_has_a_secret(ran: Ran, server: str) -> None:
    directory = ran.spark.directory(server)
    application = ran.spark.application_id()
    assert application is not None
    assert Canaries(application).in_files(directory), "the log of Spark"
    if server == "worker-0":
        applications = directory / "work" / application
        assert len(list(applications.glob("*/stderr"))) > 1, "an executor was killed, and another one started"
        assert Canaries(KNOWN).in_files(applications), "Spark writes the command of an executor"
    assert CANARIES.in_files(directory) == {}
    assert Canaries(SPARK_SECRET).in_files(directory) == {}


@pytest.mark.parametrize("server", ["master", "worker-0"])
def test_no_page_of_spark_has_a_secret(ran: Ran, server: str) -> None:
    application = ran.spark.application_id()
    assert application is not None
    pages = SparkPages(ran.spark.pages(server), "/json/").text
    assert Canaries(application).in_text(pages)
    if server == "worker-0":
        assert Canaries(KNOWN).in_text(pages), "the output of the executors is shown"
    assert CANARIES.in_text(pages) == []
    assert SPARK_SECRET not in pages


def test_no_page_of_the_driver_has_a_secret(ran: Ran) -> None:
    pages = SparkPages(ran.driver)
    pages.read_rest(ran.driver)
    assert KNOWN in pages.settings
    assert CANARIES.in_text(pages.text) == []
    assert SPARK_SECRET not in pages.text


def test_no_process_of_a_worker_has_a_secret(ran: Ran) -> None:
    worker = ran.spark.worker(0)
    known = Canaries(KNOWN).in_processes(worker)
    assert {name.split()[0] for name in known} >= {"java", "python"}, "executors and their Python processes"
    assert CANARIES.in_processes(worker) == {}
    assert CANARIES.in_processes(ran.watch.pid) == {}
    for process in (*family(worker), *family(ran.watch.pid)):  # Spark has its own secret in a variable of the executor
        assert SPARK_SECRET not in arguments(process)


def test_no_file_of_the_checkpoint_or_of_the_driver_has_a_secret(ran: Ran) -> None:
    for place in (ran.hdfs, ran.temporary):
        assert ran.known.in_files(place), f"{place} is read"
        assert CANARIES.in_files(place) == {}
        assert Canaries(SPARK_SECRET).in_files(place) == {}


def test_no_line_and_no_value_in_redis_has_a_secret(ran: Ran) -> None:
    for text in ("\n".join(ran.watch.lines), repr(ran.redis_values)):
        assert ran.known.in_text(text)
        assert CANARIES.in_text(text) == []
        assert SPARK_SECRET not in text
