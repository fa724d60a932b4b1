"""The chart's Deployment of `txnwatch page`: off by default, no rights beyond those of the watcher, apart from it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from txnwatch.cli.main import parser
from txnwatch.page.clusters import read_clusters

REDIS = "redis://me:${file:/etc/txnwatch/secret/word}@redis-eu:6390/0"
EU = {"name": "payments-eu", "bootstrap_server": "a:9092,b:9094", "redis_url": REDIS, "events_topic": "other"}
US = {
    "name": "payments-us",
    "bootstrap_server": "c:9092",
    "schema_registry_url": "https://registry",
    "watcher_url": "https://watch.us.example:9464/",
    "events_key_file": "/etc/txnwatch/secret/keys",
}
SECRET = {"existingSecret": "s", "owners": "owners.toml", "webConfig": "web.yml"}
Kinds = dict[str, dict[str, Any]]


def rendered(manifests: ModuleType, directory: Path, *, secret: Any = None, **page: Any) -> dict[str, Kinds]:
    """What the chart makes: by the name of an object, and by its kind."""
    file = directory / "values.json"
    given = {
        "image": {"repository": "registry.example.com/txnwatch"},
        "settings": {"bootstrap_server": "a:9092"},
        "secret": secret or {},
        "page": {"enabled": True, "clusters": [EU, US], **page},
    }
    file.write_text(json.dumps(given))
    found: dict[str, Kinds] = {}
    for one in yaml.safe_load_all(manifests.rendered("--values", str(file))):
        if one is not None:
            found.setdefault(one["metadata"]["name"], {})[one["kind"]] = one
    return found


def of_page(manifests: ModuleType, directory: Path, **values: Any) -> Kinds:
    return rendered(manifests, directory, **values)["txnwatch-page"]


def container(found: Kinds) -> dict[str, Any]:
    (only,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def test_it_is_off_by_default(manifests: ModuleType, tmp_path: Path) -> None:
    assert rendered(manifests, tmp_path, enabled=False).keys() == {"txnwatch"}
    assert "kind: Deployment" not in manifests.rendered("--values", str(manifests.PLAIN))


def test_the_file_of_clusters_is_one_that_the_command_reads(manifests: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "word").write_text("secret")
    file = tmp_path / "clusters.toml"
    text = of_page(manifests, tmp_path)["ConfigMap"]["data"]["clusters.toml"]
    file.write_text(text.replace("/etc/txnwatch/secret", str(tmp_path), 1))
    found = [one.model_dump(mode="json", exclude_unset=True) for one in read_clusters(file)]
    assert found == [{**EU, "redis_url": "redis://me:secret@redis-eu:6390/0"}, US]


def test_the_command_accepts_its_arguments(manifests: ModuleType, tmp_path: Path) -> None:
    found = of_page(manifests, tmp_path, secret=SECRET, httpNames=["page.example", "txn.example"])
    parsed = parser().parse_args(container(found)["args"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container(found)["volumeMounts"]}
    assert str(parsed.clusters_file) == f"{mounts['clusters']}/clusters.toml"
    assert (str(parsed.http_host), parsed.http_port) == ("0.0.0.0", "9465")
    assert parsed.http_names == "page.example,txn.example"
    assert str(parsed.owners_file) == f"{mounts['secret']}/owners.toml"
    assert str(parsed.http_web_config_file) == f"{mounts['secret']}/web.yml"


def test_nothing_of_the_watcher_selects_its_pods_and_nothing_of_it_those_of_the_watcher(
    manifests: ModuleType, tmp_path: Path
) -> None:
    found = rendered(manifests, tmp_path)
    page, watcher = found["txnwatch-page"], found["txnwatch"]
    of_page, of_watcher = (
        one["spec"]["template"]["metadata"]["labels"] for one in (page["Deployment"], watcher["StatefulSet"])
    )
    for selector, labels, others in (
        (page["Deployment"]["spec"]["selector"]["matchLabels"], of_page, of_watcher),
        (page["Service"]["spec"]["selector"], of_page, of_watcher),
        (page["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], of_page, of_watcher),
        (watcher["StatefulSet"]["spec"]["selector"]["matchLabels"], of_watcher, of_page),
        (watcher["Service"]["spec"]["selector"], of_watcher, of_page),
        (watcher["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], of_watcher, of_page),
        (watcher["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], of_watcher, of_page),
    ):
        assert selector.items() <= labels.items()
        assert not selector.items() <= others.items()


def test_its_pods_have_the_rights_of_the_watcher_at_most(manifests: ModuleType, tmp_path: Path) -> None:
    found = rendered(manifests, tmp_path, secret=SECRET)
    pod = found["txnwatch-page"]["Deployment"]["spec"]["template"]["spec"]
    watcher = found["txnwatch"]["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"].items() <= watcher["securityContext"].items()
    assert container(found["txnwatch-page"])["securityContext"] == watcher["containers"][0]["securityContext"]
    assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
    assert all(mount["readOnly"] for mount in container(found["txnwatch-page"])["volumeMounts"])
    assert "env" not in container(found["txnwatch-page"])


def test_a_change_of_the_clusters_starts_new_pods(manifests: ModuleType, tmp_path: Path) -> None:
    marks = [
        of_page(manifests, tmp_path, clusters=clusters)["Deployment"]["spec"]["template"]["metadata"]["annotations"]
        for clusters in ([EU], [EU], [EU, US])
    ]
    assert marks[0] == marks[1] != marks[2]


@pytest.mark.parametrize(("secret", "probe"), [({}, "httpGet"), (SECRET, "tcpSocket")], ids=["open", "protected"])
def test_the_probes_need_no_user(manifests: ModuleType, tmp_path: Path, secret: Any, probe: str) -> None:
    found = container(of_page(manifests, tmp_path, secret=secret))
    assert all(found[name][probe]["port"] == "page" for name in ("startupProbe", "livenessProbe", "readinessProbe"))


def egress(found: Kinds) -> list[list[int]]:
    """The TCP ports of each rule behind that of DNS."""
    _, *rules = found["NetworkPolicy"]["spec"]["egress"]
    return [[one["port"] for one in rule["ports"]] for rule in rules]


def test_the_ports_follow_the_clusters(manifests: ModuleType, tmp_path: Path) -> None:
    token = {"url": "https://idp.example/token"}
    assert egress(of_page(manifests, tmp_path)) == [[9092, 9094], [6390], [443]]
    with_more = {"kafka": {"ports": [9095]}, "tokenEndpoint": token}
    assert egress(of_page(manifests, tmp_path, networkPolicy=with_more)) == [[9092, 9094, 9095], [6390], [443], [443]]
    assert egress(of_page(manifests, tmp_path, clusters=[{"name": "a", "bootstrap_server": "a:1"}])) == [[1]]


def test_nobody_may_connect_until_somebody_is_named(manifests: ModuleType, tmp_path: Path) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    assert of_page(manifests, tmp_path)["NetworkPolicy"]["spec"]["ingress"] == []
    (rule,) = of_page(manifests, tmp_path, networkPolicy={"from": [peer]})["NetworkPolicy"]["spec"]["ingress"]
    assert rule == {"from": [peer], "ports": [{"protocol": "TCP", "port": "page"}]}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no cluster": ({"clusters": []}, "/page/clusters"),
    "no servers": ({"clusters": [{"name": "a"}]}, "/page/clusters/0"),
    "an unknown key": ({"clusters": [{**EU, "no_such_key": "x"}]}, "no_such_key"),
    "a name with a slash": ({"clusters": [{**EU, "name": "a/b"}]}, "/page/clusters/0/name"),
    "a password": ({"clusters": [{**EU, "redis_url": "redis://:secret@r:1"}]}, "/page/clusters/0/redis_url"),
    "a port that the chart does not see": (
        {"clusters": [{**EU, "redis_url": "${file:/etc/txnwatch/secret/redis}"}]},
        "page.networkPolicy.redis.ports: expected the port of redis_url of page.clusters",
    ),
}


@pytest.mark.parametrize(("values", "named"), WRONG.values(), ids=WRONG.keys())
def test_wrong_values_are_refused(manifests: ModuleType, tmp_path: Path, values: dict[str, Any], named: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as found:
        of_page(manifests, tmp_path, **values)
    assert named in found.value.stderr
