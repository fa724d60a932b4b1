"""The recipe of deploy/alertmanager: checked by amtool, and run by a real Alertmanager with hostile names."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.alertmanager import an_alertmanager, tool
from support.http_receiver import ReceivedRequest, Receiver, Says, receiving
from support.incidents import OWNER_VALUE, an_event
from support.log_lines import LogLines
from support.waiting import eventually
from txnwatch.push.push_file import AlertmanagerTarget, PushFile
from txnwatch.push.targets import PushTargets
from txnwatch.state.model.incident import EndedBy, EndKind, IncidentEvent, Resolution, resolved
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch_demo.embedded.real_servers import free_ports

pytestmark = pytest.mark.integration
RECIPE = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yaml"
HOSTILE = '<!channel> <@U1> @here ``` https://evil.example "quoted" \x1b[31m\u202e {{ .Status }}'
_LONG_S = 30.0
QUIET_S = 5.0  # more than two pauses of a group
MOST_OF_A_STORM = 4  # the alerts arrive in parts, and a group may be told between two of them


def amtool(*arguments: str) -> str:
    done = subprocess.run([tool("amtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_amtool_accepts_the_recipe() -> None:
    assert "SUCCESS" in amtool("check-config", str(RECIPE))


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (["owner=checkout", "severity=critical"], "checkout-pager"),
        (["owner=checkout", "severity=warning"], "checkout"),
        (["owner=none", "severity=critical"], "platform-pager"),
        (["owner=none", "severity=warning"], "platform"),
        (["owner=none", "severity=info"], "nobody"),
        (["owner=checkout", "severity=info"], "nobody"),
        (["alertname=TxnwatchDown", "severity=critical"], "platform-pager"),
        (["alertname=TxnwatchEventsNotDelivered", "severity=critical"], "platform-pager"),
    ],
)
def test_an_alert_reaches_its_owner(labels: list[str], receiver: str) -> None:
    assert amtool("config", "routes", "test", f"--config.file={RECIPE}", *labels) == receiver


def recipe_to(receiver: Receiver, directory: Path) -> dict[str, Any]:
    """The recipe, with a receiver of the test in place of Slack and PagerDuty."""
    (directory / "slack").write_text(f"{receiver.url}/slack")
    (directory / "key").write_text("a-routing-key")
    found: dict[str, Any] = yaml.safe_load(RECIPE.read_text())
    found["global"] = {"pagerduty_url": f"{receiver.url}/pagerduty"}
    found["templates"] = [str(RECIPE.with_name("txnwatch.tmpl"))]
    found["route"].update(group_wait="1s", group_interval="2s")
    for one in found["receivers"]:
        for slack in one.get("slack_configs", ()):
            slack["api_url_file"] = str(directory / "slack")
        for pager in one.get("pagerduty_configs", ()):
            pager["routing_key_file"] = str(directory / "key")
    return found


def answered(request: ReceivedRequest) -> Says:
    """As Slack and PagerDuty answer."""
    if request.path == "/slack":
        return Says(200, {}, b"ok")
    return Says(202, {"Content-Type": "application/json"}, b'{"status":"success"}')


class Stage:
    """The recipe in a real Alertmanager, and txnwatch that pushes to it."""

    def __init__(self, receiver: Receiver, targets: PushTargets) -> None:
        self._receiver = receiver
        self._targets = targets

    def put(self, *events: IncidentEvent) -> None:
        """Tells the incidents."""
        self._targets.queues[0].put(events)

    def of(self, kind: str) -> list[Any]:
        """What Slack or PagerDuty has got."""
        return [json.loads(one.body) for one in self._receiver.received if one.path == f"/{kind}"]

    def until(self, kind: str, count: int = 1) -> list[Any]:
        """The same, once there are so many."""
        return eventually(lambda: (found := self.of(kind))[count - 1 :] and found, _LONG_S, f"{count} of {kind}")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with receiving() as receiver:
        receiver.usually = answered
        with an_alertmanager(tmp_path, *free_ports(1), recipe_to(receiver, tmp_path)) as running:
            target = AlertmanagerTarget(name="main", urls=[running.url], external_url="https://txnwatch.example")
            targets = PushTargets(PushFile(alertmanager=[target]), tmp_path, wall_clock_ms, LogLines())
            targets.start()
            try:
                yield Stage(receiver, targets)
            finally:
                targets.stop()


def a_hang(name: str = "incident", **changes: Any) -> IncidentEvent:
    now_ms = wall_clock_ms()
    times = {"open_since_ms": now_ms - 5_000, "time_ms": now_ms, "detected_at_ms": now_ms}
    return an_event(name, **times, **changes)


def assert_is_seen_without_a_click(text: str) -> None:
    """Slack shows the text of an attachment up to this size without "Show more"."""
    assert len(text) < 700
    assert text.count("\n") < 5


def test_slack_and_pagerduty_get_text_that_mentions_nobody_and_the_command(stage: Stage) -> None:
    hang = a_hang(transactional_id=HOSTILE)
    stage.put(hang)
    ((attachment,),) = (one["attachments"] for one in stage.until("slack"))
    (pager,) = stage.until("pagerduty")
    assert attachment["title"] == "[FIRING] cluster: orders-3: Kafka transaction hanging"
    page = f"https://txnwatch.example/incident/{hang.incident_id}"
    assert attachment["title_link"] == page
    assert attachment["text"].endswith(f"\n```{hang.suggested_command}```")
    assert attachment["text"].count("```") == 2
    assert_is_seen_without_a_click(attachment["text"])
    (field,) = attachment["fields"]
    assert field["value"].splitlines()[-2:] == [
        "Runbook: https://github.com/txnwatch/txnwatch/blob/main/docs/runbook.md#hanging",
        f"Page: {page}",
    ]
    assert "Also: " not in field["value"]
    details = pager["payload"]["custom_details"]
    assert pager["payload"]["severity"] == "critical"
    assert details["command"] == hang.suggested_command
    assert (details["incident"], details["details"]) == (attachment["text"], field["value"])
    assert "evil" in field["value"]
    for text in (json.dumps(attachment), json.dumps(pager)):
        assert "<!" not in text
        assert "<@" not in text
        assert "@here" not in text
        assert "evil.example" not in text
        assert "https://evil" not in text


@pytest.mark.parametrize("owner", [None, OWNER_VALUE], ids=["platform", "team"])
def test_a_team_gets_the_same_details_as_the_platform(stage: Stage, owner: Any) -> None:
    stage.put(a_hang(owner=owner))
    ((attachment,),) = (one["attachments"] for one in stage.until("slack"))
    (pager,) = stage.until("pagerduty")
    whom = "Checkout (#checkout-oncall)" if owner is not None else "not known"
    details = pager["payload"]["custom_details"]
    assert_is_seen_without_a_click(attachment["text"])
    slack = attachment["text"] + attachment["fields"][0]["value"]
    for text in (slack, details["incident"] + details["details"]):
        for said in (
            "Open since at least ",
            f"Owner: {whom}.",
            "21 records",
            "*Safe to end it?* ",
            "*Next:* ",
            "Page: ",
        ):
            assert said in text
    assert details["command"]
    assert (details["firing"], details["resolved"]) == ("1", "0")
    assert ("contact" in details and details["contact"]) == ("#checkout-oncall" if owner is not None else "")


def test_a_storm_of_one_cause_is_one_message_and_one_page(stage: Stage) -> None:
    stage.put(
        *(a_hang(f"incident {number}", partition=number, transactional_id=f"dwh-{number}") for number in range(1_000))
    )
    stage.put(a_hang("another cause", topic="payments"))
    eventually(
        lambda: {title.rpartition("-")[0][-6:] for title in titles(stage)} >= {"orders", "yments"}, _LONG_S, "both"
    )
    time.sleep(QUIET_S)
    storm = [title for title in titles(stage) if "orders" in title]
    assert len(storm) <= MOST_OF_A_STORM
    assert re.fullmatch(r"\[FIRING 1000\] cluster: orders-\d+: Kafka transaction hanging", storm[-1])
    assert titles(stage).count("[FIRING] cluster: payments-3: Kafka transaction hanging") == 1
    assert len({one["dedup_key"] for one in stage.of("pagerduty")}) == 2, "pages"
    text = max((one["attachments"][0]["fields"][0]["value"] for one in stage.of("slack")), key=len)
    assert text.count("\nAlso: cluster: orders-") in {4, 5}, "the worst one may be one of the first five"
    assert "of this cause in all" in text
    assert len(text) < 4_000


def test_a_group_is_told_by_its_worst_alert(stage: Stage) -> None:
    """Alertmanager has them in the order of their labels."""
    stopped = [{"group_id": "ledger", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}]
    worst = a_hang("worst", partition=7, consumer_groups=an_event("x", consumer_groups=stopped).consumer_groups)
    stage.put(*(a_hang(f"incident {number}", partition=number) for number in (1, 2, 8, 9)), worst)
    eventually(lambda: [one for one in titles(stage) if "FIRING 5" in one], _LONG_S, "all of them")
    assert titles(stage)[-1] == "[FIRING 5] cluster: orders-7: Kafka transaction hanging"
    attachment = stage.of("slack")[-1]["attachments"][0]
    assert attachment["title_link"].endswith(worst.incident_id)
    assert "Groups that stand still: ledger." in attachment["fields"][0]["value"]
    assert attachment["text"].startswith("The worst of 5. Open since at least ")
    assert_is_seen_without_a_click(attachment["text"])
    assert stage.of("pagerduty")[-1]["payload"]["custom_details"]["incident"] == attachment["text"]
    also = re.findall(r"Also: cluster: orders-(\d)", attachment["fields"][0]["value"])
    assert sorted(also) == ["1", "2", "8", "9"]


def titles(stage: Stage) -> list[str]:
    return [one["attachments"][0]["title"] for one in stage.of("slack")]


def test_nobody_gets_info(stage: Stage) -> None:
    whole = {"topic": None, "partition": None, "topic_id": None, "reason": None}
    stage.put(a_hang("info", **whole, verdict="long_running", severity="info"))
    stage.put(a_hang("late", **whole, verdict="late", severity="warning"))
    ((attachment,),) = (one["attachments"] for one in stage.until("slack"))
    assert "Kafka transaction late" in attachment["title"]
    assert "If its application is a Flink job" in attachment["text"]
    assert "Then: To end it, restart its application" in attachment["fields"][0]["value"]
    assert_is_seen_without_a_click(attachment["text"])


def test_an_end_says_how_it_ended(stage: Stage) -> None:
    hang = a_hang()
    stage.put(hang)
    stage.until("slack")
    resolution = Resolution(how=EndKind.ABORTED, by=EndedBy.ADMINISTRATOR, at_ms=wall_clock_ms())
    stage.put(resolved(hang, wall_clock_ms(), resolution))
    _, (attachment,) = (one["attachments"] for one in stage.until("slack", 2))
    assert attachment["title"].startswith(
        "[RESOLVED] cluster: orders-3: Kafka transaction hanging: aborted by administr"
    )
    assert attachment["text"].startswith("It is over: aborted by administrator, after ")
    said = json.dumps(attachment)
    assert "No marker will ever come" not in said
    assert "```" not in said
    assert "Owner: not known." in attachment["fields"][0]["value"]
