"""The NetworkPolicy of the chart: who may connect to the metrics port, and which ports the pod may connect to."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
FURTHER = {"ports": [{"protocol": "TCP", "port": 7078}]}


def policy_of(
    manifests: ModuleType, directory: Path, settings: dict[str, Any] | None = None, **values: Any
) -> dict[str, Any]:
    file = directory / "values.json"
    given = {
        "image": {"repository": "registry.example.com/txnwatch"},
        "settings": {"bootstrap_server": "a:9092", **(settings or {})},
        "networkPolicy": values,
    }
    file.write_text(json.dumps(given))
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


def ports(policy: dict[str, Any]) -> list[list[int]]:
    """The TCP ports of each rule behind that of DNS."""
    _, *rules = policy["egress"]
    return [[one["port"] for one in rule["ports"] if one["protocol"] == "TCP"] for rule in rules]


FOLLOWED: dict[str, tuple[dict[str, str], dict[str, Any], list[list[int]]]] = {
    "Kafka alone": ({}, {}, [[9092]]),
    "every service": (
        {
            "bootstrap_server": "a:9093,b:9094,c:9093",
            "redis_url": "rediss://me:${env:WORD}@r:6390/0?protocol=3",
            "schema_registry_url": "https://s.example/a:1,http://t:8081",
        },
        {"tokenEndpoint": {"url": "https://idp.example/token"}},
        [[9093, 9094], [6390], [443, 8081], [443]],
    ),
    "ports of the schemes": (
        {"redis_url": "redis://${file:/etc/txnwatch/secret/user}@r/0", "schema_registry_url": "http://s"},
        {"tokenEndpoint": {"url": "http://idp:8080/token"}},
        [[9092], [6379], [80], [8080]],
    ),
    "sentinels, and the servers behind them": (
        {"redis_url": "redis+sentinel://s,t:26380/main/0"},
        {"redis": {"ports": [6379]}},
        [[9092], [26379, 26380, 6379]],
    ),
    "brokers on other ports": ({"bootstrap_server": "[::1]:9092"}, {"kafka": {"ports": [9092, 9094]}}, [[9092, 9094]]),
    "a socket": ({"redis_url": "unix:///run/redis.sock"}, {}, [[9092]]),
    "a URL that the chart does not see": (
        {"redis_url": "${file:/etc/txnwatch/secret/redis-url}"},
        {"redis": {"ports": [6379]}},
        [[9092], [6379]],
    ),
    "a file of settings": ({}, {"redis": {"ports": [6379]}}, [[9092], [6379]]),
}


@pytest.mark.parametrize(("settings", "values", "expected"), FOLLOWED.values(), ids=FOLLOWED.keys())
def test_the_ports_of_egress_follow_the_settings(
    manifests: ModuleType,
    tmp_path: Path,
    settings: dict[str, str],
    values: dict[str, Any],
    expected: list[list[int]],
) -> None:
    assert ports(policy_of(manifests, tmp_path, settings, **values)) == expected


def test_a_peer_that_is_named_is_the_only_one_on_the_ports(manifests: ModuleType, tmp_path: Path) -> None:
    peer = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    (_, rule) = policy_of(manifests, tmp_path, kafka={"to": [peer]})["egress"]
    assert rule == {"ports": [{"protocol": "TCP", "port": 9092}], "to": [peer]}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"redis_url": "${env:REDIS_URL}"}, "networkPolicy.redis.ports: expected the port of settings.redis_url"),
        ({"redis_url": "redis://${env:REDIS_ADDRESS}/0"}, "networkPolicy.redis.ports"),
        ({"bootstrap_server": "a:${env:PORT}"}, "networkPolicy.kafka.ports"),
        ({"schema_registry_url": "${env:REGISTRY}"}, "networkPolicy.schemaRegistry.ports"),
    ],
)
def test_a_port_that_the_chart_does_not_see_must_be_named(
    manifests: ModuleType, tmp_path: Path, settings: dict[str, str], named: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as found:
        policy_of(manifests, tmp_path, settings)
    assert named in found.value.stderr
    assert policy_of(manifests, tmp_path, settings, **{named.split(".")[1]: {"ports": [7000]}})
