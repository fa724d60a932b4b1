"""Rules, dashboard, image and compose file: everything they name exists, and each alert has an instruction."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.alertmanager import tool
from support.fake_admin import FakeAdmin
from support.fake_groups import FakeGroups
from support.log_lines import LogLines
from support.recording_sink import RecordingTopic
from txnwatch.config import RunSettings
from txnwatch.metrics.collector import Metrics
from txnwatch.metrics.table import METRICS, Kind
from txnwatch.push.alertmanager import ALERT_NAMES
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.telling.commands import Origin

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "txnwatch.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# Labels that Prometheus gives to everything it scrapes; `cluster` is that of the targets (docs/metrics.md).
GIVEN = {"job", "instance", "cluster"}


def scraped_names() -> dict[str, set[str]]:
    """Every series name with its labels."""
    found: dict[str, set[str]] = {}
    for spec in METRICS:
        if spec.kind is Kind.HISTOGRAM:
            found[f"{spec.full_name}_bucket"] = {*spec.labels, "le"}
            found.update({key: set(spec.labels) for key in (f"{spec.full_name}_sum", f"{spec.full_name}_count")})
        else:
            found[spec.full_name] = set(spec.labels)
    return found


SCRAPED = scraped_names()


def wrong_names(expression: str) -> list[str]:
    """What an expression names and no scrape has: series, and labels of its matchers and groupings."""
    series = re.findall(r"(txnwatch_\w+)(?:\{([^}]*)\})?", expression)
    wrong = [name for name, _ in series if name not in SCRAPED]
    known = set[str]().union(*(SCRAPED.get(name, set()) for name, _ in series)) | GIVEN
    for name, matchers in series:
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        wrong += [f"{name}: {label}" for label in labels - SCRAPED.get(name, set()) - GIVEN]
    for grouped in re.findall(r"(?:by|on|without)\s*\(([^)]*)\)", expression):
        wrong += [label for label in map(str.strip, grouped.split(",")) if label and label not in known]
    return wrong


# The alerts that a push to Alertmanager replaces; all others are about the watcher and the cluster.
OF_INCIDENTS = {"KafkaTransactionHanging", "KafkaTransactionStuckPrepare", "KafkaTransactionLate", "KafkaStrayWrite"}
# They compare the watchers of the same topics, which may be targets of several jobs.
OF_SEVERAL_WATCHERS = {"TxnwatchNobodySpeaks", "TxnwatchSeveralSpeak"}


def test_the_alerts_that_a_push_replaces_are_a_group_of_their_own() -> None:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())["groups"]
    assert [group["name"] for group in groups] == ["txnwatch-incidents", "txnwatch-health"]
    assert {rule["alert"] for rule in groups[0]["rules"]} == OF_INCIDENTS
    assert set(ALERT_NAMES.values()) >= OF_INCIDENTS
    assert {"TxnwatchDown", "TxnwatchAbsent"} <= {rule["alert"] for rule in groups[1]["rules"]}
    assert not set(ALERT_NAMES.values()) & {rule["alert"] for rule in groups[1]["rules"]}


def test_names_that_do_not_exist_are_found() -> None:
    assert wrong_names('sum by (topic) (txnwatch_upp{job="a",verdict="x"})') == [
        "txnwatch_upp",
        "txnwatch_upp: verdict",
        "topic",
    ]
    assert wrong_names('sum by (job, verdict) (txnwatch_open_incidents{verdict="hanging"}) > 0') == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_keeps_the_label_cluster_of_the_targets(rule: dict[str, Any]) -> None:
    groupings = re.findall(r"\bby\s*\(([^)]*)\)", rule["expr"])
    about = "cluster, group" if rule["alert"] in OF_SEVERAL_WATCHERS else "cluster, job, instance"
    assert all(grouped.startswith(about) for grouped in groupings)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_whole_and_names_what_exists(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"(Kafka|Txnwatch)\w+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert "txnwatch_" in rule["expr"]
    assert wrong_names(rule["expr"]) == []
    url, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^##+ (.*)$", (ROOT / "docs" / "runbook.md").read_text(), flags=re.MULTILINE)
    assert url.endswith("/docs/runbook.md")
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_alerts_lead_to_every_section_of_the_runbook() -> None:
    led_to = {rule["annotations"]["runbook_url"].partition("#")[2] for rule in RULES}
    headings = re.findall(r"^##+ (.*)$", (ROOT / "docs" / "runbook.md").read_text(), flags=re.MULTILINE)
    unled = {heading.lower().replace(" ", "-") for heading in headings} - led_to
    causes = {"why-markers-are-lost-and-writes-are-late", "unclean-elections", "compaction-and-markers", "old-clients"}
    assert unled == {"long_running", "unstable_offset_commit", "watcher", "kafka-connect", *causes}, (
        "an early warning, what a client reports of a hang, the section above those of the alerts, what a hang does to "
        "Connect, and causes of a hang"
    )


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_shows_a_metric_that_exists_and_has_a_description(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["targets"]
    for target in panel["targets"]:
        assert "txnwatch_" in target["expr"]
        assert wrong_names(target["expr"]) == []
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert legend <= set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))))


EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
    *(annotation["expr"] for annotation in DASHBOARD["annotations"]["list"]),
]
RISING = sorted(
    {
        (name, tuple(re.findall(r'(\w+)="([^"]*)"', matchers)))
        for expression in EXPRESSIONS
        for name, matchers in re.findall(r"(?:increase|rate|changes)\((txnwatch_\w+)(?:\{([^}]*)\})?", expression)
    }
)


@pytest.mark.parametrize(("name", "matchers"), RISING, ids=lambda found: found if isinstance(found, str) else "")
def test_a_counter_for_a_rate_exists_before_it_rises(name: str, matchers: tuple[tuple[str, str], ...]) -> None:
    """The increase of a series that appears with the value 1 is 0: the first time would go unseen."""
    metrics = Metrics(lambda: 0)
    metrics.query_starts(
        RunningLedger(
            Origin("cluster", "unused:1"),
            FakeAdmin(),
            FakeGroups(),
            TopicOutbox(RecordingTopic(), LogLines()),
            lambda: 0,
        )
    )
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    found = [sample for sample in samples if sample.name == name and set(matchers) <= set(sample.labels.items())]
    assert found
    assert {sample.value for sample in found} <= {0, 1}, "the query has been started once"


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        covered = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not covered & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= covered
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_annotations_and_variables_name_what_exists() -> None:
    for annotation in DASHBOARD["annotations"]["list"]:
        assert wrong_names(annotation["expr"]) == []
    queries = [
        variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"
    ]
    assert len(queries) == 2
    assert [wrong for query in queries for wrong in wrong_names(query)] == []


def test_the_dashboard_links_to_the_page_at_an_address_that_its_reader_can_change() -> None:
    (link,) = DASHBOARD["links"]
    boxes = {one["name"]: one for one in DASHBOARD["templating"]["list"] if one["type"] == "textbox"}
    name = link["url"].removeprefix("${").partition("}")[0]
    assert (link["type"], link["url"], list(boxes)) == ("link", f"${{{name}}}/", [name])
    box = boxes[name]
    assert box["skipUrlSync"] is True, "a link to the dashboard sets no address"
    assert not any(link[key] for key in ("includeVars", "keepTime", "asDropdown"))
    ports = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["txnwatch"]["ports"]
    address, _, port = ports[0].rpartition(":")
    assert box["query"] == box["current"]["value"] == f"http://{address}", "where the compose file serves it"
    assert port == "9464"


def test_the_alert_of_a_watcher_that_is_away_is_one_for_each() -> None:
    (absent,) = (rule for rule in RULES if rule["alert"] == "TxnwatchAbsent")
    seen_now_and_before = "count by (cluster, job, instance) (count_over_time(txnwatch_up[1d])) unless"
    assert seen_now_and_before in absent["expr"]
    assert "$labels.instance" in absent["annotations"]["summary"]


def test_the_alert_about_exposures_is_in_a_file_of_its_own() -> None:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "exposures.yaml").read_text())["groups"]
    (rule,) = group["rules"]
    assert rule["alert"] not in {one["alert"] for one in RULES}
    assert not any("exposures" in one["expr"] for one in RULES), "who wants it adds the file"
    assert wrong_names(rule["expr"]) == []
    path, _, anchor = rule["annotations"]["runbook_url"].partition("/docs/")[2].partition("#")
    assert f"## {anchor.replace('-', ' ').capitalize()}\n" in (ROOT / "docs" / path).read_text()


def test_promtool_agrees() -> None:
    promtool, files = tool("promtool"), DEPLOY / "prometheus"
    rules = [str(files / name) for name in ("rules.yaml", "exposures.yaml")]
    tests = sorted(map(str, files.glob("*_test.yaml")))
    assert len(tests) == 3
    for command, named in (("check", rules), ("test", tests)):
        done = subprocess.run([promtool, command, "rules", *named], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def settings_named(text: str) -> set[str]:
    return {name.lower() for name in re.findall(r"\bTXNWATCH_([A-Z_]+)\b", text)}


@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml", "k8s/txnwatch.yaml"])
def test_every_variable_is_a_setting(file: str) -> None:
    named = settings_named((DEPLOY / file).read_text())
    assert named
    assert named <= RunSettings.model_fields.keys()


def test_every_file_that_compose_mounts_or_builds_exists() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounts = [mount.split(":")[0] for service in services.values() for mount in service.get("volumes", ())]
    assert [path for path in mounts if path.startswith(".") and not (DEPLOY / path).exists()] == []
    (scraped,) = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    assert scraped["static_configs"][0]["targets"] == ["txnwatch:9464"]
    assert (DEPLOY / services["txnwatch"]["build"]["context"] / services["txnwatch"]["build"]["dockerfile"]).exists()


def test_ports_are_published_on_the_loopback_address() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {
        "txnwatch": ["127.0.0.1:9464:9464"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
    }
    assert not [name for name, service in services.items() if "network_mode" in service]
    pages = [DEPLOY / "Dockerfile", *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    flags = {flag for page in pages for flag in re.findall(r"docker run .*?(?:-p|--publish) (\S+)", page.read_text())}
    assert flags == {"127.0.0.1:9464:9464"}


def test_the_image_gets_every_package() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"].values()
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{path.split('/')[0]}" for path in packages} <= set(allowed)


def is_in_the_context(path: str, patterns: Sequence[str]) -> bool:
    """Whether Docker sends a file to the build: the last pattern that has it, or a directory of it, decides."""
    above = [path, *map(str, Path(path).parents)][:-1]
    is_in = True
    for pattern in patterns:
        if any(fnmatch(one, pattern.removeprefix("!")) for one in above):
            is_in = pattern.startswith("!")
    return is_in


def test_the_image_gets_every_file_that_it_copies() -> None:
    patterns = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copies = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    files = [file for copied in copies for file in copied.split() if file != "."]
    assert "deploy/image/entrypoint.py" in files
    assert [file for file in files if not is_in_the_context(file, patterns)] == []
    assert not is_in_the_context("src/txnwatch_demo/command.py", patterns)
    assert not is_in_the_context(".git/config", patterns)
