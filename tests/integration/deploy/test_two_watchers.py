"""Two watchers of one cluster by the chart: a checkpoint each, two nodes, and one of them at a time is replaced."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

SETTINGS = {"bootstrap_server": "a:9092"}
PROTECTED = {"existingSecret": "s", "webConfig": "web.yml"}


def rendered(manifests: ModuleType, directory: Path, **values: Any) -> dict[str, Any]:
    """What the chart makes, by kind."""
    file = directory / "values.json"
    file.write_text(json.dumps({"image": {"repository": "r.example/txnwatch"}, "settings": SETTINGS, **values}))
    return {one["kind"]: one for one in yaml.safe_load_all(manifests.rendered("--values", str(file))) if one}


def checkpoint(found: dict[str, Any]) -> str:
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    (value,) = (one["value"] for one in container["env"] if one["name"] == "TXNWATCH_CHECKPOINT")
    return str(value)


def test_one_watcher_is_the_default(manifests: ModuleType, tmp_path: Path) -> None:
    found = rendered(manifests, tmp_path)["StatefulSet"]["spec"]
    assert found["replicas"] == 1
    assert "topologySpreadConstraints" not in found["template"]["spec"]
    assert rendered(manifests, tmp_path, watchers=1)["StatefulSet"]["spec"] == found


def test_each_of_two_has_a_claim_of_its_own_and_they_are_spread_over_the_nodes(
    manifests: ModuleType, tmp_path: Path
) -> None:
    found = rendered(manifests, tmp_path, watchers=2)
    spec = found["StatefulSet"]["spec"]
    assert (spec["replicas"], [one["metadata"]["name"] for one in spec["volumeClaimTemplates"]]) == (2, ["checkpoint"])
    assert checkpoint(found) == "/var/lib/txnwatch/checkpoint"
    assert "updateStrategy" not in spec, "one pod after another, each time that the new one is ready"
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    labels = spec["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("watchers", [1, 2])
def test_below_a_uri_each_has_the_directory_of_its_pod(manifests: ModuleType, tmp_path: Path, watchers: int) -> None:
    """The same of one as of two: the first one keeps its checkpoint if a second one is added."""
    found = rendered(manifests, tmp_path, watchers=watchers, checkpoint={"uri": "s3a://bucket/txnwatch/"})
    assert checkpoint(found) == "s3a://bucket/txnwatch/$(POD_NAME)"
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    names = [one["name"] for one in container["env"]]
    assert names.index("POD_NAME") < names.index("TXNWATCH_CHECKPOINT"), "a variable is known to those behind it"


def test_without_a_probe_for_ready_nothing_replaces_both(manifests: ModuleType, tmp_path: Path) -> None:
    assert "updateStrategy" not in rendered(manifests, tmp_path, secret=PROTECTED)["StatefulSet"]["spec"]
    found = rendered(manifests, tmp_path, watchers=2, secret=PROTECTED)["StatefulSet"]["spec"]
    assert found["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"watchers": 3}, "watchers"),
        ({"watchers": 0}, "watchers"),
        (
            {"watchers": 2, "checkpoint": {"volume": {"existingClaim": "mine"}}},
            "checkpoint.volume.existingClaim: a checkpoint has one writer",
        ),
    ],
    ids=["three", "none", "one claim for two"],
)
def test_what_would_give_a_checkpoint_two_writers_is_refused(
    manifests: ModuleType, tmp_path: Path, values: dict[str, Any], named: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as found:
        rendered(manifests, tmp_path, **values)
    assert named in found.value.stderr


def test_a_target_has_the_name_of_its_pod_and_of_its_cluster(manifests: ModuleType, tmp_path: Path) -> None:
    own = [{"targetLabel": "team", "replacement": "a"}]
    monitor = {"serviceMonitor": {"enabled": True, "endpoint": {"scheme": "https", "relabelings": own}}}
    named = {**SETTINGS, "cluster_name": "payments-eu"}
    instance = {
        "sourceLabels": ["__meta_kubernetes_namespace", "__meta_kubernetes_pod_name"],
        "separator": "/",
        "targetLabel": "instance",
    }
    label = {"targetLabel": "cluster", "replacement": "payments-eu"}
    for settings, expected in ((SETTINGS, [instance, *own]), (named, [instance, *own, label])):
        found = rendered(manifests, tmp_path, settings=settings, metrics=monitor)
        (endpoint,) = found["ServiceMonitor"]["spec"]["endpoints"]
        assert (endpoint["scheme"], endpoint["relabelings"]) == ("https", expected)
