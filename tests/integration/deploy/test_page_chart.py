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
from txnwatch.page.clusters_file import read_clusters

EU = {
    "name": "payments-eu",
    "watchers": ["http://watch-eu:9464/", "https://watch-eu-2/"],
    "bootstrap_server": "a:9092",
    "events_topic": "other",
}
US = {
    "name": "payments-us",
    "watchers": ["https://watch.us.example:9443/"],
    "user": "page",
    "password_file": "/etc/txnwatch/secret/page-password",
    "ca_file": "/etc/txnwatch/secret/ca.pem",
    "cluster_id": "Qk7rXf2mTtS9",
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
    file = tmp_path / "clusters.toml"
    file.write_text(of_page(manifests, tmp_path)["ConfigMap"]["data"]["clusters.toml"])
    assert [one.model_dump(mode="json", exclude_unset=True) for one in read_clusters(file)] == [EU, US]


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


def test_the_ports_follow_the_watchers(manifests: ModuleType, tmp_path: Path) -> None:
    assert egress(of_page(manifests, tmp_path)) == [[9464, 443, 9443]]
    with_more = {"watchers": {"ports": [9465]}}
    assert egress(of_page(manifests, tmp_path, networkPolicy=with_more)) == [[9464, 443, 9443, 9465]]


def test_the_watcher_of_the_release_lets_the_page_connect(manifests: ModuleType, tmp_path: Path) -> None:
    (rule,) = rendered(manifests, tmp_path)["txnwatch"]["NetworkPolicy"]["spec"]["ingress"]
    labels = of_page(manifests, tmp_path)["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert rule["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert rule["ports"] == [{"protocol": "TCP", "port": "metrics"}]
    assert rendered(manifests, tmp_path, enabled=False)["txnwatch"]["NetworkPolicy"]["spec"]["ingress"] == []


def test_nobody_may_connect_until_somebody_is_named(manifests: ModuleType, tmp_path: Path) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    assert of_page(manifests, tmp_path)["NetworkPolicy"]["spec"]["ingress"] == []
    (rule,) = of_page(manifests, tmp_path, networkPolicy={"from": [peer]})["NetworkPolicy"]["spec"]["ingress"]
    assert rule == {"from": [peer], "ports": [{"protocol": "TCP", "port": "page"}]}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no cluster": ({"clusters": []}, "/page/clusters"),
    "no watcher": ({"clusters": [{"name": "a"}]}, "/page/clusters/0"),
    "an empty list": ({"clusters": [{"name": "a", "watchers": []}]}, "/page/clusters/0/watchers"),
    "an unknown key": ({"clusters": [{**EU, "no_such_key": "x"}]}, "no_such_key"),
    "a name with a slash": ({"clusters": [{**EU, "name": "a/b"}]}, "/page/clusters/0/name"),
    "a password": ({"clusters": [{**EU, "watchers": ["https://me:secret@r/"]}]}, "/page/clusters/0/watchers"),
}


@pytest.mark.parametrize(("values", "named"), WRONG.values(), ids=WRONG.keys())
def test_wrong_values_are_refused(manifests: ModuleType, tmp_path: Path, values: dict[str, Any], named: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as found:
        of_page(manifests, tmp_path, **values)
    assert named in found.value.stderr
