"""The NetworkPolicy of the chart: who may connect to the metrics port, and the further rules of the user."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
FURTHER = {"ports": [{"protocol": "TCP", "port": 7078}]}


def policy_of(manifests: ModuleType, directory: Path, **values: list[Any]) -> dict[str, Any]:
    file = directory / "values.json"
    file.write_text(json.dumps({"settings": {"bootstrap_server": "a:9092"}, "networkPolicy": values}))
    every = yaml.safe_load_all(manifests.rendered("--values", str(file)))
    (found,) = (one["spec"] for one in every if one is not None and one["kind"] == "NetworkPolicy")
    policy: dict[str, Any] = found
    return policy


@pytest.mark.parametrize(
    ("metrics_from", "further"),
    [([], []), ([], [FURTHER]), ([PROMETHEUS], []), ([PROMETHEUS], [FURTHER])],
    ids=["nobody", "further rules", "Prometheus", "both"],
)
def test_the_metrics_port_admits_only_the_peers_that_are_named(
    manifests: ModuleType, tmp_path: Path, metrics_from: list[Any], further: list[Any]
) -> None:
    policy = policy_of(manifests, tmp_path, metricsFrom=metrics_from, extraIngress=further)
    assert "Ingress" in policy["policyTypes"], "what no rule allows is denied"
    port = [{"protocol": "TCP", "port": "metrics"}]
    assert policy["ingress"] == [*([{"ports": port, "from": metrics_from}] if metrics_from else []), *further]
