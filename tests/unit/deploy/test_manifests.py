"""The plain manifests: one writer of the checkpoint, no password in the definition of the pod, no needless rights."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from txnwatch.config import RunSettings
from txnwatch.web.server import WebServer

ROOT = Path(__file__).parents[3]
K8S = ROOT / "deploy" / "k8s"
CHART = ROOT / "deploy" / "helm" / "txnwatch"
MANIFESTS: dict[str, dict[str, Any]] = {
    found["kind"]: found for file in sorted(K8S.glob("*.yaml")) for found in yaml.safe_load_all(file.read_text())
}
SET = MANIFESTS["StatefulSet"]
POD: dict[str, Any] = SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENVIRONMENT = {entry["name"]: entry["value"] for entry in CONTAINER["env"]}
MOUNTS = {mount["name"]: mount for mount in CONTAINER["volumeMounts"]}
VOLUMES = {volume["name"]: volume for volume in POD["volumes"]}


def test_a_checkpoint_has_one_writer() -> None:
    """A Deployment replaces a pod that is being deleted at once, so for a while two processes would run."""
    assert SET["kind"] == "StatefulSet"
    assert SET["spec"]["replicas"] == 1
    assert SET["spec"].get("updateStrategy", {"type": "RollingUpdate"})["type"] == "RollingUpdate"
    assert "Deployment" not in MANIFESTS


def test_an_update_replaces_a_pod_that_is_not_ready() -> None:
    assert SET["spec"]["podManagementPolicy"] == "Parallel"


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_is_served(probe: str) -> None:
    served = inspect.getsource(WebServer)
    assert f'"{CONTAINER[probe]["httpGet"]["path"]}"' in served
    assert CONTAINER[probe]["httpGet"]["port"] == "metrics"


def test_the_checkpoint_is_on_the_volume_and_the_metrics_are_on_the_port() -> None:
    (claim,) = SET["spec"]["volumeClaimTemplates"]
    assert ENVIRONMENT["TXNWATCH_CHECKPOINT"].startswith(MOUNTS[claim["metadata"]["name"]]["mountPath"] + "/")
    assert {"name": "metrics", "containerPort": int(ENVIRONMENT["TXNWATCH_HTTP_PORT"])} in CONTAINER["ports"]


def test_a_claim_outlives_the_release() -> None:
    assert SET["spec"]["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}


def test_the_process_ends_between_two_batches_before_it_is_killed() -> None:
    patience_s = 3  # tests/e2e/test_stopping.py
    assert POD["terminationGracePeriodSeconds"] >= patience_s + 10


def test_the_pod_has_no_rights_that_it_does_not_need() -> None:
    assert POD["automountServiceAccountToken"] is False
    assert POD["serviceAccountName"] == MANIFESTS["ServiceAccount"]["metadata"]["name"]
    assert MANIFESTS["ServiceAccount"]["automountServiceAccountToken"] is False
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & POD.keys()


def test_the_user_of_the_pod_is_the_user_of_the_image() -> None:
    context = POD["securityContext"]
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text().splitlines()
    assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in dockerfile
    assert context["fsGroup"] == context["runAsGroup"]


def test_native_libraries_can_be_loaded_from_tmp() -> None:
    """The JVM unpacks RocksDB there. An emptyDir permits execution unless it is on a special medium."""
    (scratch,) = (mount["name"] for mount in MOUNTS.values() if mount["mountPath"] == "/tmp")
    assert VOLUMES[scratch]["emptyDir"].keys() == {"sizeLimit"}


def test_secrets_are_files() -> None:
    assert [mount["mountPath"] for mount in MOUNTS.values() if mount.get("readOnly")] == ["/etc/txnwatch/secret"]
    assert VOLUMES["secret"]["secret"] == {"secretName": "txnwatch", "defaultMode": 0o400}
    assert ENVIRONMENT["TXNWATCH_COMMAND_CONFIG"] == "/etc/txnwatch/secret/client.properties"
    assert CONTAINER["args"] == ["run"]
    assert "Secret" not in MANIFESTS
    assert not [entry for entry in CONTAINER["env"] if "valueFrom" in entry]
    assert "envFrom" not in CONTAINER


def test_service_links_do_not_become_settings() -> None:
    assert POD["enableServiceLinks"] is False
    ours = {name.removeprefix("TXNWATCH_").lower() for name in ENVIRONMENT if name.startswith("TXNWATCH_")}
    assert ours <= RunSettings.model_fields.keys()


def test_spark_listens_only_inside_the_pod() -> None:
    assert ENVIRONMENT["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_the_service_its_monitor_the_policy_and_the_budget_lead_to_the_pods() -> None:
    labels = SET["spec"]["template"]["metadata"]["labels"]
    assert SET["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert SET["spec"]["serviceName"] == MANIFESTS["Service"]["metadata"]["name"]
    assert MANIFESTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    monitor = MANIFESTS["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= MANIFESTS["Service"]["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == MANIFESTS["Service"]["spec"]["ports"][0]["name"]


def test_the_network_policy_permits_what_is_needed_and_nothing_else() -> None:
    policy = MANIFESTS["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"] == [], "the metrics port admits nobody until somebody is named"
    ports = [(port["protocol"], port["port"]) for rule in policy["egress"] for port in rule["ports"]]
    assert ports == [("UDP", 53), ("TCP", 53), ("TCP", 9092)], "the settings name no other service"


def test_the_alert_rules_are_those_of_prometheus() -> None:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yaml").read_text())
    assert MANIFESTS["PrometheusRule"]["spec"] == rules


def test_the_chart_has_every_setting_once() -> None:
    settings = json.loads((CHART / "values.schema.json").read_text())["properties"]["settings"]["properties"]
    of_the_chart = {
        "command_config",
        "events_key_file",
        "checkpoint",
        "http_port",
        "http_host",
        "http_web_config_file",
        "owners_file",
        "push_file",
        "spark_conf",  # a table cannot be a variable: the file of `secret.config` has it
        "checkpoint_is_shared",  # one pod
    }
    assert settings.keys() | of_the_chart == RunSettings.model_fields.keys()
    assert settings.keys() & of_the_chart == set()


def test_the_versions_of_chart_and_package_are_the_same() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{chart["appVersion"]}"\n' in project
    assert chart["version"] == chart["appVersion"]


def test_the_metrics_are_reached_from_other_pods_and_containers() -> None:
    assert ENVIRONMENT["TXNWATCH_HTTP_HOST"] == "0.0.0.0"
    composed = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    assert composed["services"]["txnwatch"]["environment"]["TXNWATCH_HTTP_HOST"] == "0.0.0.0"
    assert "TXNWATCH_HTTP_HOST=0.0.0.0" in (ROOT / "deploy" / "Dockerfile").read_text()
