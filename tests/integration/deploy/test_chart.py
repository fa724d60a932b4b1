"""The Helm chart: helm accepts it, Kubernetes' schemas accept what it makes, and wrong values are refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from support.chart_values import EVERYTHING, PAGE
from support.kubernetes_tools import KUBERNETES_VERSION

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "txnwatch"
K8S = ROOT / "deploy" / "k8s"
REPOSITORY = "registry.example.com/txnwatch"
REQUIRED = f"settings.bootstrap_server=kafka:9092,image.repository={REPOSITORY}"
OBJECT_STORE = {"settings": {"bootstrap_server": "a:9092"}, "checkpoint": {"uri": "s3a://bucket/txnwatch"}}
OWN_CLAIM = {"settings": {"bootstrap_server": "a:9092"}, "checkpoint": {"volume": {"existingClaim": "mine"}}}
NOTHING_OPTIONAL = {
    "settings": {"bootstrap_server": "a:9092"},
    "networkPolicy": {"enabled": False, "allowOpenPorts": True},
    "podDisruptionBudget": {"enabled": False},
    "serviceAccount": {"create": False},
}
VALUES = {
    "everything": EVERYTHING,
    "object store": OBJECT_STORE,
    "own claim": OWN_CLAIM,
    "less": NOTHING_OPTIONAL,
    "page": PAGE,
}


def rendered(manifests: ModuleType, values: dict[str, Any], directory: Path) -> str:
    file = directory / "values.json"
    file.write_text(json.dumps({**values, "image": {"repository": REPOSITORY, **values.get("image", {})}}))
    text: str = manifests.rendered("--values", str(file))
    return text


def kinds(text: str) -> dict[str, dict[str, Any]]:
    return {found["kind"]: found for found in yaml.safe_load_all(text) if found is not None}


def pod(text: str) -> dict[str, Any]:
    found: dict[str, Any] = kinds(text)["StatefulSet"]["spec"]["template"]["spec"]
    return found


def environment(text: str) -> dict[str, str]:
    (container,) = pod(text)["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def test_helm_has_no_complaint(helm: Path) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", CHART, "--set", REQUIRED, "--kube-version", KUBERNETES_VERSION],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


def test_the_plain_manifests_are_those_of_the_chart(manifests: ModuleType) -> None:
    made = manifests.manifests()
    assert {file.name for file in K8S.iterdir()} == made.keys()
    for name, text in made.items():
        assert (K8S / name).read_text() == text, f"deploy/k8s/{name} is old: run `make manifests`"


def test_only_the_labels_of_helm_are_left_out_of_the_plain_manifests(manifests: ModuleType) -> None:
    of_helm = kinds(manifests.rendered("--values", str(manifests.PLAIN)))
    plain = {kind: found for file in K8S.iterdir() for kind, found in kinds(file.read_text()).items()}
    for found in of_helm.values():
        del found["metadata"]["labels"]["app.kubernetes.io/managed-by"]
        del found["metadata"]["labels"]["helm.sh/chart"]
    assert plain == of_helm


@pytest.mark.long
def test_the_schemas_of_kubernetes_accept_the_plain_manifests(kubeconform: list[str]) -> None:
    done = subprocess.run([*kubeconform, K8S], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 resources found in 2 files - Valid: 7, Invalid: 0, Errors: 0, Skipped: 0" in done.stdout


@pytest.mark.long
@pytest.mark.matrix
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_the_schemas_of_kubernetes_accept_what_the_chart_makes(
    manifests: ModuleType, kubeconform: list[str], values: dict[str, Any], tmp_path: Path
) -> None:
    text = rendered(manifests, values, tmp_path)
    done = subprocess.run([*kubeconform, "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout


@pytest.mark.long
@pytest.mark.matrix
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("replicas: 1", "replica: 1"),
        ("policyTypes:", "policytypes:"),
        ("maxUnavailable: 1", "maxUnavailable: [1]"),
        ("interval: 15s", "interval: 15"),
        ("runAsUser: 10001", 'runAsUser: "10001"'),
    ],
)
def test_the_schemas_refuse_what_kubernetes_would_ignore(
    manifests: ModuleType, kubeconform: list[str], right: str, wrong: str
) -> None:
    text = manifests.rendered("--values", str(manifests.PLAIN))
    assert right in text
    done = subprocess.run(
        [*kubeconform, "-"], input=text.replace(right, wrong), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("flags", "named"),
    [
        pytest.param([], "/settings/bootstrap_server", id="no bootstrap server"),
        pytest.param(["image.repository="], "/image/repository", id="no image"),
        pytest.param(["settings.redis_url=redis://:secret@redis:6379"], "/settings/redis_url", id="Redis password"),
        pytest.param(
            ["settings.redis_url=redis://redis?password=x"], "/settings/redis_url", id="password in the query"
        ),
        pytest.param(
            ["settings.redis_url=redis+sentinel://s/m?db=1&sentinel_password=x${file:/x}"],
            "/settings/redis_url",
            id="password before a reference",
        ),
        pytest.param(
            ["settings.redis_url=redis://redis?password=${file:/x}x&db=1"],
            "/settings/redis_url",
            id="password after a reference",
        ),
        pytest.param(["settings.redis_url=redis://redis?password=$x"], "/settings/redis_url", id="no reference"),
        pytest.param(
            ["settings.schema_registry_url=http://me:secret@r"], "/settings/schema_registry_url", id="registry"
        ),
        pytest.param(["settings.redis_url=redis://me:${secret@r"], "/settings/redis_url", id="no whole reference"),
        pytest.param(["secret.existingSecret=s", "secret.webConfig=/x"], "/secret/webConfig", id="web file elsewhere"),
        pytest.param(["secret.webConfig=web.yml"], "/secret/existingSecret", id="web file of no Secret"),
        pytest.param(["settings.no_such_key=1"], "no_such_key", id="unknown setting"),
        pytest.param(["settings.checkpoint=/tmp/x"], "checkpoint", id="a setting that the chart sets"),
        pytest.param(["settings.trigger_ms=0"], "/settings/trigger_ms", id="number too small"),
        pytest.param(["settings.trigger_ms=soon"], "/settings/trigger_ms", id="no number"),
        pytest.param(["settings.auto_abort=maybe"], "/settings/auto_abort", id="unknown value"),
        pytest.param(["secret.clientProperties=client.properties"], "/secret/existingSecret", id="file of no Secret"),
        pytest.param(["secret.existingSecret=s", "secret.config=../x"], "/secret/config", id="file elsewhere"),
        pytest.param(
            ["networkPolicy.enabled=false"], "set secret.webConfig (TLS and users)", id="a port that is open to all"
        ),
        pytest.param(["replicas=2"], "replicas", id="two writers"),
        pytest.param(["terminationGracePeriodSeconds=5"], "/terminationGracePeriodSeconds", id="killed in a batch"),
        pytest.param(["image.digest=latest"], "/image/digest", id="no digest"),
        pytest.param(["checkpoint.uri=s3a://key:secret@bucket/x"], "/checkpoint/uri", id="password in the URI"),
        pytest.param(["checkpoint.uri=s3a://key:sec/ret@bucket/x"], "/checkpoint/uri", id="password with a slash"),
        pytest.param(["checkpoint.uri=s3a://@bucket/x"], "/checkpoint/uri", id="user without a name"),
        pytest.param(
            ["extraEnv[0].name=TXNWATCH_REDIS_URL", "extraEnv[0].value=redis://r"],
            "extraEnv: TXNWATCH_REDIS_URL is a setting of txnwatch: use `settings`",
            id="a setting as a variable",
        ),
        pytest.param(
            ["extraEnv[0].name=A", "extraEnv[0].value=1"], "/extraEnv/0/value", id="variable that is a number"
        ),
        pytest.param(["extraEnv[0].name=A=B", "extraEnv[0].value=x"], "/extraEnv/0/name", id="name of no variable"),
        pytest.param(["extraEnv[0].name=A"], "/extraEnv/0", id="variable without a value"),
        pytest.param(["extraEnv[0].name=AWS_SECRET_ACCESS_KEY", "extraEnv[0].value=x"], "/extraEnv/0", id="secret"),
        pytest.param(["extraEnv[0].name=redis_password", "extraEnv[0].value=x"], "/extraEnv/0", id="password"),
        pytest.param(
            ["extraEnv[0].name=HTTPS_PROXY", "extraEnv[0].value=http://me:secret@proxy:3128"],
            "/extraEnv/0/value",
            id="password of a proxy",
        ),
        pytest.param(
            ["extraEnv[0].name=A", "extraEnv[0].value=x", "extraEnv[0].valueFrom.fieldRef.fieldPath=spec.nodeName"],
            "/extraEnv/0",
            id="variable with two values",
        ),
    ],
)
def test_wrong_values_are_refused(manifests: ModuleType, flags: list[str], named: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as found:
        manifests.rendered(*([] if not flags else ["--set", ",".join([REQUIRED, *flags])]))
    assert named in found.value.stderr


def test_every_setting_reaches_the_process_as_it_was_given(manifests: ModuleType, tmp_path: Path) -> None:
    found = environment(rendered(manifests, EVERYTHING, tmp_path))
    assert found["TXNWATCH_MAX_BYTES_PER_SECOND"] == "268435456", "without an exponent"
    assert found["TXNWATCH_LONG_RUNNING_FRACTION"] == "0.5"
    assert found["TXNWATCH_ABORT_TRANSACTIONAL_ID_PREFIXES"] == "orders-,payments-"
    assert found["TXNWATCH_AUTO_ABORT"] == "dry-run"
    assert found["TXNWATCH_COMMAND_CONFIG"] == "/etc/txnwatch/secret/client.properties"
    assert found["TXNWATCH_EVENTS_KEY_FILE"] == "/etc/txnwatch/secret/events.keys"
    assert found["TXNWATCH_PUSH_FILE"] == "/etc/txnwatch/secret/push.toml"


def test_settings_with_a_password_are_a_file(manifests: ModuleType, tmp_path: Path) -> None:
    (container,) = pod(rendered(manifests, EVERYTHING, tmp_path))["containers"]
    assert container["args"] == ["run", "--config", "/etc/txnwatch/secret/txnwatch.toml"]


@pytest.mark.matrix
@pytest.mark.parametrize(
    "url",
    [
        "redis://watch@redis:6379/0",
        "rediss://watch:${file:/etc/txnwatch/secret/redis-password}@redis:6379/0",
        "redis://:${env:REDIS_PASSWORD}@redis:6379/0",
        "redis://redis:6379/0?protocol=3",
        "redis://${file:/etc/txnwatch/secret/user}:${env:REDIS_PASSWORD}@${env:REDIS_HOST}:6379/0",
        "redis+sentinel://s:26379/main?sentinel_password=${file:/etc/txnwatch/secret/sentinel-password}&db=1",
        "redis://redis:6379/0?username=watch&password=${env:REDIS_PASSWORD}",
        "rediss://redis:6379/0?ssl_ca_certs=/etc/txnwatch/secret/password-server.crt",
        "${env:REDIS_URL}",
    ],
)
def test_a_url_may_have_a_user_and_refer_to_a_password(manifests: ModuleType, tmp_path: Path, url: str) -> None:
    # A URL that is a reference alone shows no port.
    policy = {"redis": {"ports": [6379]}}
    values = {"settings": {"bootstrap_server": "a:9092", "redis_url": url}, "networkPolicy": policy}
    assert environment(rendered(manifests, values, tmp_path))["TXNWATCH_REDIS_URL"] == url


def test_each_url_of_a_schema_registry_may_have_a_user(manifests: ModuleType, tmp_path: Path) -> None:
    urls = "http://me:${file:/p}@a:8081,http://me:${file:/p}@b:8081"
    values = {"settings": {"bootstrap_server": "a:9092", "schema_registry_url": urls}}
    assert environment(rendered(manifests, values, tmp_path))["TXNWATCH_SCHEMA_REGISTRY_URL"] == urls


def test_a_setting_refers_to_a_variable_of_a_secret(
    manifests: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txnwatch.setting_sources import load_settings

    monkeypatch.chdir(tmp_path)
    own = {"settings": {"bootstrap_server": "a:9092", "redis_url": "redis://:${env:REDIS_PASSWORD}@redis:6379/0"}}
    text = rendered(manifests, {**EVERYTHING, **own}, tmp_path)
    (container,) = pod(text)["containers"]
    assert EVERYTHING["extraEnv"] == container["env"][-len(EVERYTHING["extraEnv"]) :]
    # The kubelet replaces the reference to the Secret by its value.
    settings = load_settings({}, None, {**environment(text), "REDIS_PASSWORD": "word"})
    assert settings.redis_url == "redis://:word@redis:6379/0"


def test_a_variable_of_the_user_replaces_that_of_the_chart(manifests: ModuleType, tmp_path: Path) -> None:
    own_address = {"name": "SPARK_LOCAL_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    values = {"settings": {"bootstrap_server": "a:9092"}, "extraEnv": [own_address]}
    (container,) = pod(rendered(manifests, values, tmp_path))["containers"]
    assert [entry for entry in container["env"] if entry["name"] == "SPARK_LOCAL_IP"] == [own_address]


def test_the_table_of_owners_is_a_file_of_the_secret(manifests: ModuleType, tmp_path: Path) -> None:
    values = {
        "settings": {"bootstrap_server": "a:9092"},
        "secret": {"existingSecret": "s", "owners": "owners.toml"},
    }
    assert environment(rendered(manifests, values, tmp_path))["TXNWATCH_OWNERS_FILE"] == (
        "/etc/txnwatch/secret/owners.toml"
    )


def test_a_protected_metrics_port_is_probed_in_the_container(manifests: ModuleType, tmp_path: Path) -> None:
    endpoint = {"scheme": "https", "basicAuth": {"username": {"name": "scraper", "key": "user"}}}
    values = {
        "settings": {"bootstrap_server": "a:9092"},
        "secret": {"existingSecret": "s", "webConfig": "web.yml"},
        "metrics": {"serviceMonitor": {"enabled": True, "endpoint": endpoint}},
    }
    text = rendered(manifests, values, tmp_path)
    assert environment(text)["TXNWATCH_HTTP_WEB_CONFIG_FILE"] == "/etc/txnwatch/secret/web.yml"
    (container,) = pod(text)["containers"]
    check = {"command": ["python", "/opt/txnwatch/healthcheck.py"]}
    assert [container[probe]["exec"] for probe in ("startupProbe", "livenessProbe")] == [check, check]
    assert "readinessProbe" not in container, "the kubelet has no user, and ready is not the same as healthy"
    (found,) = kinds(text)["ServiceMonitor"]["spec"]["endpoints"]
    relabelled = found.pop("relabelings")
    assert [one["targetLabel"] for one in relabelled] == ["instance"]
    assert found == {"port": "metrics", "interval": "15s", **endpoint}


@pytest.mark.parametrize(
    "protection",
    [{"secret": {"existingSecret": "s", "webConfig": "web.yml"}}, {"networkPolicy": {"allowOpenPorts": True}}],
    ids=["users", "something else"],
)
def test_without_the_network_policy_the_ports_are_protected_in_another_way(
    manifests: ModuleType, tmp_path: Path, protection: dict[str, Any]
) -> None:
    policy = {"enabled": False, **protection.get("networkPolicy", {})}
    values = {"settings": {"bootstrap_server": "a:9092"}, **protection, "networkPolicy": policy}
    found = kinds(rendered(manifests, values, tmp_path))
    assert "NetworkPolicy" not in found
    assert "StatefulSet" in found


def test_further_rules_of_the_network_policy_are_added(manifests: ModuleType, tmp_path: Path) -> None:
    policy = kinds(rendered(manifests, EVERYTHING, tmp_path))["NetworkPolicy"]["spec"]
    assert len(policy["ingress"]) == 2
    assert policy["ingress"][-1] == EVERYTHING["networkPolicy"]["extraIngress"][0]
    assert policy["egress"][-1] == EVERYTHING["networkPolicy"]["extraEgress"][0]


def test_the_queries_accept_the_same_variables_as_run(
    manifests: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from txnwatch.setting_sources import load_settings

    monkeypatch.chdir(tmp_path)
    settings = load_settings({}, None, environment(rendered(manifests, EVERYTHING, tmp_path)))
    assert settings.abort_transactional_id_prefixes == ("orders-", "payments-")
    assert settings.max_bytes_per_second == 268435456
    assert settings.http_port == 9464


def test_spark_listens_for_executors_of_another_master(manifests: ModuleType) -> None:
    with_local = environment(manifests.rendered("--set", f"{REQUIRED},settings.master=local[4]"))
    assert with_local["SPARK_LOCAL_IP"] == "127.0.0.1"
    with_cluster = environment(manifests.rendered("--set", f"{REQUIRED},settings.master=spark://master:7077"))
    assert "SPARK_LOCAL_IP" not in with_cluster


# Each scheme that docs/spark-cluster.md names; the container of Azure is in the place of a user.
@pytest.mark.matrix
@pytest.mark.parametrize(
    "uri",
    [
        "s3a://bucket/txnwatch",
        "gs://bucket/txnwatch",
        "hdfs://namenode:8020/txnwatch",
        "hdfs:///txnwatch",
        "abfss://container@account.dfs.core.windows.net/txnwatch",
    ],
)
def test_a_checkpoint_in_an_object_store_needs_no_claim(manifests: ModuleType, tmp_path: Path, uri: str) -> None:
    text = rendered(manifests, {**OBJECT_STORE, "checkpoint": {"uri": uri}}, tmp_path)
    assert environment(text)["TXNWATCH_CHECKPOINT"] == f"{uri}/$(POD_NAME)"
    assert "volumeClaimTemplates" not in kinds(text)["StatefulSet"]["spec"]
    assert not [volume for volume in pod(text)["volumes"] if "persistentVolumeClaim" in volume]


def test_a_claim_of_the_user_is_used(manifests: ModuleType, tmp_path: Path) -> None:
    text = rendered(manifests, OWN_CLAIM, tmp_path)
    assert "volumeClaimTemplates" not in kinds(text)["StatefulSet"]["spec"]
    assert {"name": "checkpoint", "persistentVolumeClaim": {"claimName": "mine"}} in pod(text)["volumes"]


def test_labels_of_the_user_do_not_replace_those_of_the_selector(manifests: ModuleType, tmp_path: Path) -> None:
    values = {"settings": {"bootstrap_server": "a:9092"}, "podLabels": {"app.kubernetes.io/name": "other"}}
    found = kinds(rendered(manifests, values, tmp_path))["StatefulSet"]["spec"]
    assert found["template"]["metadata"]["labels"] == found["selector"]["matchLabels"]


def test_two_releases_have_different_names(manifests: ModuleType, helm: Path) -> None:
    assert kinds(manifests.rendered("--set", REQUIRED))["StatefulSet"]["metadata"]["name"] == "txnwatch"
    other = [helm, "template", "payments", CHART, "--set", REQUIRED, "--kube-version", "1.34.0"]
    text = subprocess.run(other, capture_output=True, text=True, check=True).stdout
    assert {found["metadata"]["name"] for found in kinds(text).values()} == {"payments-txnwatch"}
