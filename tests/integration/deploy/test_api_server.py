"""The manifests on a real API server: its validation, its defaults, and the admission of the level `restricted`."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import kubernetes_builds
from support.kubernetes_tools import UnavailableError
from support.missing_tools import skip_or_fail
from support.waiting import eventually
from txnwatch_demo.embedded.real_servers import free_ports

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
K8S = ROOT / "deploy" / "k8s"
TOKEN = "of-the-test"
NAMESPACE = "restricted"
START_S = 60.0
Apply = Callable[..., subprocess.CompletedProcess[str]]


def process(stack: ExitStack, log: Path, *command: str | Path) -> subprocess.Popen[bytes]:
    """A server that ends with the stack."""
    output = stack.enter_context(log.open("wb"))
    started = subprocess.Popen([str(argument) for argument in command], stdout=output, stderr=subprocess.STDOUT)
    stack.callback(lambda: (started.terminate(), started.wait(30)))
    return started


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def run_kubectl(kubectl: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apply]:
    """Runs kubectl on an API server with a namespace that enforces the level `restricted`."""
    try:
        server, etcd = kubernetes_builds.api_server()
    except UnavailableError as exc:
        skip_or_fail(f"no API server: {exc}")
    home = tmp_path_factory.mktemp("api-server")
    store, peers, secure = free_ports(3)
    url = f"http://127.0.0.1:{store}"
    key = home / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (home / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')

    def kubectl_(*args: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
        to = ["--server", f"https://127.0.0.1:{secure}", "--insecure-skip-tls-verify", "--token", TOKEN]
        command = [str(kubectl), "--cache-dir", str(home / "cache"), *to, *map(str, args)]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    with ExitStack() as stack:
        listen = [f"--listen-client-urls={url}", f"--advertise-client-urls={url}"]
        process(
            stack,
            home / "etcd.log",
            etcd,
            "--data-dir",
            home / "etcd",
            *listen,
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
        )
        eventually(lambda: listens(store), START_S, "etcd")
        process(
            stack,
            home / "api-server.log",
            server,
            *(f"--etcd-servers={url}", f"--secure-port={secure}", "--bind-address=127.0.0.1"),
            *(f"--cert-dir={home / 'certificates'}", f"--token-auth-file={home / 'tokens.csv'}"),
            *("--service-account-issuer=https://local", f"--service-account-key-file={key}"),
            *(f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.0.0.0/24"),
            *("--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"),
        )
        ready = ("get", "--raw", "/readyz")
        eventually(
            lambda: kubectl_(*ready).returncode == 0, START_S, lambda: (home / "api-server.log").read_text()[-2000:]
        )
        prepare(kubectl_)
        yield kubectl_


def prepare(kubectl: Apply) -> None:
    """Creates the custom resources of the Prometheus operator, and the namespace."""
    for kind in ("servicemonitors", "prometheusrules"):
        file = kubernetes_builds.custom_resources() / f"{kind}-crd.json"
        done = kubectl("apply", "--server-side", "--filename", file)
        assert done.returncode == 0, done.stderr
        name = f"crd/{json.loads(file.read_text())['metadata']['name']}"
        done = kubectl("wait", "--for=condition=Established", "--timeout=30s", name)
        assert done.returncode == 0, done.stderr
    assert kubectl("create", "namespace", NAMESPACE).returncode == 0
    label = "pod-security.kubernetes.io/enforce=restricted"
    assert kubectl("label", "namespace", NAMESPACE, label).returncode == 0
    time.sleep(1)  # the admission plugin has the namespace from a cache


def dry_run(kubectl: Apply, text: str) -> subprocess.CompletedProcess[str]:
    flags = ("--dry-run=server", "--validate=strict", "--namespace", NAMESPACE)
    return kubectl("apply", *flags, "--filename", "-", text=text)


def test_the_api_server_accepts_the_plain_manifests(run_kubectl: Apply) -> None:
    for file in sorted(K8S.glob("*.yaml")):
        text = file.read_text()
        done = dry_run(run_kubectl, text)
        assert done.returncode == 0, done.stderr
        count = len([found for found in yaml.safe_load_all(text) if found is not None])
        assert done.stdout.count("created (server dry run)") == count


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        pytest.param("replicas: 1", "replica: 1", "unknown field", id="a field that does not exist"),
        pytest.param("serviceName: txnwatch", "serviceName: Txnwatch_", "serviceName", id="an invalid name"),
        pytest.param("storage: 5Gi", "storage: five", "quantities must match", id="no quantity"),
    ],
)
def test_the_api_server_refuses_wrong_manifests(run_kubectl: Apply, right: str, wrong: str, message: str) -> None:
    text = (K8S / "txnwatch.yaml").read_text()
    assert right in text
    done = dry_run(run_kubectl, text.replace(right, wrong))
    assert done.returncode == 1
    assert message in done.stderr


def pod_of(text: str) -> dict[str, Any]:
    (found,) = (one for one in yaml.safe_load_all(text) if one is not None and one["kind"] == "StatefulSet")
    spec = found["spec"]["template"]["spec"]
    spec["volumes"].append({"name": "checkpoint", "emptyDir": {}})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "txnwatch-0"}, "spec": spec}


def test_the_pod_is_admitted_where_the_level_restricted_is_enforced(run_kubectl: Apply) -> None:
    pod = pod_of((K8S / "txnwatch.yaml").read_text())
    done = dry_run(run_kubectl, json.dumps(pod))
    assert done.returncode == 0, done.stderr
    del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
    assert "violates PodSecurity" in dry_run(run_kubectl, json.dumps(pod)).stderr
