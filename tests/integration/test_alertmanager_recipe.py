"""The recipe of deploy/alertmanager: checked by amtool, and run by a real Alertmanager with hostile names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.alertmanager import an_alertmanager, tool
from support.http_receiver import ReceivedRequest, Receiver, Says, receiving
from support.incidents import an_event
from support.log_lines import LogLines
from support.waiting import eventually
from txnwatch.push.push_file import AlertmanagerTarget, PushFile
from txnwatch.push.targets import PushTargets
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch_demo.embedded.real_servers import free_ports

pytestmark = pytest.mark.integration
RECIPE = Path(__file__).parents[2] / "deploy" / "alertmanager" / "alertmanager.yaml"
HOSTILE = '<!channel> <@U1> @here ``` https://evil.example "quoted" \x1b[31m\u202e {{ .Status }}'
_LONG_S = 30.0


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
        (["owner=none", "severity=info"], "platform"),
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
    found["route"]["group_wait"] = "0s"
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


def test_slack_and_pagerduty_get_text_that_mentions_nobody_and_the_command(tmp_path: Path) -> None:
    now_ms = wall_clock_ms()
    times = {"open_since_ms": now_ms - 5_000, "time_ms": now_ms, "detected_at_ms": now_ms}
    hang = an_event(transactional_id=HOSTILE, **times)
    with receiving() as receiver:
        receiver.usually = answered
        config = recipe_to(receiver, tmp_path)
        with an_alertmanager(tmp_path, *free_ports(1), config) as running:
            target = AlertmanagerTarget(name="main", urls=[running.url], external_url="https://txnwatch.example")
            targets = PushTargets(PushFile(alertmanager=[target]), tmp_path, wall_clock_ms, LogLines())
            targets.start()
            try:
                targets.queues[0].put([hang])
                eventually(lambda: {"/slack", "/pagerduty"} <= paths(receiver), _LONG_S, "both notifications")
            finally:
                targets.stop()
        sent = {request.path: request.body.decode() for request in receiver.received}
    (attachment,) = json.loads(sent["/slack"])["attachments"]
    assert attachment["title"] == "[FIRING] orders-3: Kafka transaction hanging"
    assert attachment["title_link"] == f"https://txnwatch.example/incident/{hang.incident_id}"
    assert f"```{hang.suggested_command}```" in attachment["text"]
    assert attachment["text"].count("```") == 2
    assert "#hanging|Runbook>" in attachment["text"]
    pager = json.loads(sent["/pagerduty"])
    assert pager["payload"]["severity"] == "critical"
    assert pager["payload"]["custom_details"]["command"] == hang.suggested_command
    for text in (attachment["text"], json.dumps(pager)):
        assert "<!" not in text
        assert "<@" not in text
        assert "@here" not in text
        assert "evil" in text
        assert "evil.example" not in text
        assert "https://evil" not in text


def paths(receiver: Receiver) -> set[str]:
    return {request.path for request in receiver.received}
