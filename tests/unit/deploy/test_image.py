"""The scripts of the image: its entry point and its health check."""

from __future__ import annotations

import importlib.util
from contextlib import closing
from pathlib import Path
from types import ModuleType

import bcrypt
import pytest
from prometheus_client import CollectorRegistry

from support.certificates import Authority
from txnwatch.web.server import WebServer
from txnwatch.web.web_config import read_web_config
from txnwatch_demo.embedded.real_servers import free_ports

ROOT = Path(__file__).parents[3]
EXECUTOR = {
    "SPARK_HOME": "/opt/txnwatch/spark",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1g",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-1",
}


def script(name: str) -> ModuleType:
    path = ROOT / "deploy" / "image" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"image_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ENTRYPOINT = script("entrypoint")
HEALTHCHECK = script("healthcheck")


@pytest.mark.parametrize("args", [["run"], ["status", "--wide"], []])
def test_the_image_runs_txnwatch(args: list[str]) -> None:
    assert ENTRYPOINT.command(args, {}) == ["tini", "--", "txnwatch", *args]


def test_the_image_runs_an_executor_of_spark_on_kubernetes() -> None:
    environ = {
        **EXECUTOR,
        "SPARK_JAVA_OPT_10": "-Dlast=1",
        "SPARK_JAVA_OPT_2": "-Dfirst=a b",
        "SPARK_CLASSPATH": "/x/*",
    }
    assert ENTRYPOINT.command(["executor"], environ) == [
        *(
            "tini",
            "--",
            "java",
            "-Dfirst=a b",
            "-Dlast=1",
            "-Xms1g",
            "-Xmx1g",
            "-cp",
            "/opt/txnwatch/spark/jars/*:/x/*",
        ),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://CoarseGrainedScheduler@driver:7078", "--executor-id", "1", "--cores", "2"),
        *("--app-id", "app", "--hostname", "10.0.0.7", "--resourceProfileId", "0", "--podName", "exec-1"),
    ]


def test_the_image_runs_a_driver_that_spark_submit_starts_in_the_cluster() -> None:
    environ = {"SPARK_HOME": "/opt/txnwatch/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5"}
    submitted = [
        "--properties-file",
        "/opt/spark/conf/spark.properties",
        "local:///opt/txnwatch/txnwatch_run.py",
        "run",
    ]
    assert ENTRYPOINT.command(["driver", *submitted], environ) == [
        *("tini", "--", "/opt/txnwatch/spark/bin/spark-submit"),
        *("--conf", "spark.driver.bindAddress=10.0.0.5"),
        *("--conf", "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.5"),
        *("--deploy-mode", "client", *submitted),
    ]
    with pytest.raises(SystemExit, match=r"driver: .* found no SPARK_DRIVER_BIND_ADDRESS"):
        ENTRYPOINT.command(["driver"], {"SPARK_HOME": "/opt/txnwatch/spark"})


def test_an_executor_without_its_variables_is_an_error_that_names_them() -> None:
    environ = {name: value for name, value in EXECUTOR.items() if name != "SPARK_DRIVER_URL"}
    with pytest.raises(SystemExit, match="found no SPARK_DRIVER_URL"):
        ENTRYPOINT.command(["executor"], environ)


def test_the_health_check_asks_the_metrics_server() -> None:
    (port,) = free_ports(1)
    assert not HEALTHCHECK.is_healthy(port)
    with closing(WebServer(CollectorRegistry(), "127.0.0.1", port, lambda: False)):
        assert HEALTHCHECK.is_healthy(port), "a watch that is not ready is healthy"


def test_the_health_check_of_a_protected_metrics_server(tmp_path: Path) -> None:
    Authority(tmp_path, "ca").create().issue("server", "DNS:watch")
    tls = "tls_server_config: {cert_file: server.pem, key_file: server.pem}\n"
    mutual = ", client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}"
    users = f"basic_auth_users: {{watch: {bcrypt.hashpw(b'x', bcrypt.gensalt(4)).decode()}}}\n"
    for text in (tls, users, tls + users, tls.replace("}", mutual)):
        (tmp_path / "web.yml").write_text(text)
        (port,) = free_ports(1)
        web = read_web_config(tmp_path / "web.yml")
        with closing(WebServer(CollectorRegistry(), "127.0.0.1", port, lambda: False, web)):
            assert HEALTHCHECK.is_healthy(port), text


@pytest.mark.parametrize(
    ("args", "has_metrics"),
    [
        (["tini", "--", "txnwatch", "run"], True),
        (["tini", "--", "txnwatch", "run", "--bootstrap-server", "kafka:9092"], True),
        (["/opt/txnwatch/bin/python", "/opt/txnwatch/bin/txnwatch", "run"], True),
        (["/opt/txnwatch/bin/python", "-m", "txnwatch", "run"], True),
        (ENTRYPOINT.command(["run"], {}), True),
        (
            ENTRYPOINT.command(
                ["driver", "local:///opt/txnwatch/txnwatch_run.py", "--bootstrap-server", "kafka:9092"],
                {"SPARK_HOME": "/opt/txnwatch/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.5"},
            ),
            True,
        ),
        (ENTRYPOINT.command(["executor"], EXECUTOR), False),
        (ENTRYPOINT.command(["status", "--wide"], {}), False),
        (ENTRYPOINT.command(["find-hanging", "--topics", "run"], {}), False),
        (ENTRYPOINT.command([], {}), False),
        (["docker-init", "--", "python", "/opt/txnwatch/entrypoint.py", "run"], True),
        (["docker-init", "--", "python", "/opt/txnwatch/entrypoint.py", "status"], False),
        (["/pause"], True),
        (["/sbin/init"], True),
    ],
)
def test_the_health_check_asks_no_container_that_runs_another_command(args: list[str], *, has_metrics: bool) -> None:
    assert HEALTHCHECK.has_metrics(args) is has_metrics
