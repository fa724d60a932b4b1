"""The push with a real Alertmanager: what fires, what ends, and what a watcher that has died leaves behind."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.alertmanager import RunningAlertmanager, an_alertmanager
from support.http_receiver import Receiver, receiving
from support.incidents import a_life, an_event, an_update
from support.log_lines import LogLines
from support.waiting import eventually
from txnwatch.push.push_file import AlertmanagerTarget, PushFile
from txnwatch.push.targets import PushTargets
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch_demo.embedded.real_servers import free_ports

pytestmark = pytest.mark.integration
_LONG_S = 30.0
RESEND_MS = 1_000
HANGING, LATE, LONG_RUNNING = "KafkaTransactionHanging", "KafkaTransactionLate", "KafkaTransactionLongRunning"


def routed_to(receiver: Receiver) -> dict[str, Any]:
    """A configuration that notifies at once, and about each change."""
    return {
        "route": {
            "receiver": "hook",
            "group_by": ["cluster", "incident"],
            "group_wait": "0s",
            "group_interval": "1s",
        },
        "receivers": [{"name": "hook", "webhook_configs": [{"url": receiver.url, "send_resolved": True}]}],
    }


@contextmanager
def pushing(directory: Path, *peers: RunningAlertmanager) -> Iterator[PushTargets]:
    target = AlertmanagerTarget(
        name="main",
        urls=[peer.url for peer in peers],
        resend_ms=RESEND_MS,
        hold_ms=60_000,
        labels={"env": "test"},
        least_severity="info",
    )
    targets = PushTargets(PushFile(alertmanager=[target]), directory, wall_clock_ms, LogLines())
    targets.start()
    try:
        yield targets
    finally:
        targets.stop()


def now(event: IncidentEvent, *, ago_ms: int = 5_000) -> IncidentEvent:
    """The event, at this time."""
    now_ms = wall_clock_ms()
    then_ms = TimestampMs(now_ms - ago_ms)
    event = replace(event, open_since_ms=then_ms, time_ms=now_ms, detected_at_ms=now_ms)
    return event if event.resolution is None else replace(event, resolution=replace(event.resolution, at_ms=now_ms))


def put(targets: PushTargets, *events: IncidentEvent) -> None:
    for queue in targets.queues:
        queue.put(events)


def notified(receiver: Receiver) -> list[tuple[str, str, str]]:
    """What was said about each alert: its name, incident and status, each change once."""
    found = []
    for request in receiver.received:
        for alert in json.loads(request.body)["alerts"]:
            said = alert["labels"]["alertname"], alert["labels"]["incident"], alert["status"]
            if said not in found:
                found.append(said)
    return found


def a_transaction(verdict: str, severity: str) -> IncidentEvent:
    event = an_event(f"of {verdict}", topic=None, partition=None, topic_id=None, verdict=verdict, severity=severity)
    return now(event)


def test_an_incident_fires_at_once_and_ends_with_its_end(tmp_path: Path) -> None:
    opened, _, over = a_life("incident")
    with (
        receiving() as receiver,
        an_alertmanager(tmp_path, *free_ports(1), routed_to(receiver)) as peer,
        pushing(tmp_path, peer) as targets,
    ):
        begun = time.monotonic()
        put(targets, now(opened))
        eventually(lambda: (HANGING, opened.incident_id, "firing") in notified(receiver), _LONG_S, "the alert")
        assert time.monotonic() - begun < 10.0
        (alert,) = peer.alerts().values()
        assert alert["labels"] == {
            "alertname": HANGING,
            "severity": "critical",
            "cluster": "cluster",
            "reason": "already_completed",
            "topic": "orders",
            "partition": "3",
            "incident": opened.incident_id,
            "owner": "none",
            "env": "test",
        }
        put(targets, now(over))
        eventually(lambda: (HANGING, opened.incident_id, "resolved") in notified(receiver), _LONG_S, "the end")
        assert peer.alerts() == {}


def test_a_watcher_that_has_died_does_not_end_a_hang(tmp_path: Path) -> None:
    hang, late = now(an_event()), a_transaction("late", "warning")
    with receiving() as receiver, an_alertmanager(tmp_path, *free_ports(1), routed_to(receiver)) as peer:
        with pushing(tmp_path, peer) as targets:
            put(targets, hang, late)
            eventually(lambda: len(peer.alerts()) == 2, _LONG_S, "both alerts")
            time.sleep(3 * RESEND_MS / 1000)
            assert len(peer.alerts()) == 2, "renewed"
        eventually(
            lambda: (LATE, late.incident_id, "resolved") in notified(receiver), _LONG_S, "an end without renewal"
        )
        assert list(peer.alerts()) == [(HANGING, hang.incident_id)]
        assert (HANGING, hang.incident_id, "resolved") not in notified(receiver)
        with pushing(tmp_path, peer) as targets:  # the next watcher goes on where it is
            put(targets, now(an_update(hang, wall_clock_ms(), hidden_records=99)))
            eventually(
                lambda: "99 records" in peer.alerts()[HANGING, hang.incident_id]["annotations"]["description"],
                _LONG_S,
                "the update",
            )


def test_a_verdict_that_becomes_worse_ends_the_former_alert(tmp_path: Path) -> None:
    first = a_transaction("long_running", "info")
    with (
        receiving() as receiver,
        an_alertmanager(tmp_path, *free_ports(1), routed_to(receiver)) as peer,
        pushing(tmp_path, peer) as targets,
    ):
        put(targets, first)
        eventually(lambda: (LONG_RUNNING, first.incident_id) in peer.alerts(), _LONG_S, "the first alert")
        put(targets, now(an_update(first, wall_clock_ms(), verdict="late", severity="warning")))
        eventually(lambda: list(peer.alerts()) == [(LATE, first.incident_id)], _LONG_S, "the other alert alone")


def test_every_peer_gets_every_alert_and_one_that_has_lost_its_alerts_gets_them_again(tmp_path: Path) -> None:
    hang = now(an_event())
    first_directory, second_directory = tmp_path / "first", tmp_path / "second"
    first_directory.mkdir()
    second_directory.mkdir()
    ports = free_ports(2)
    with (
        receiving() as receiver,
        an_alertmanager(first_directory, ports[0], routed_to(receiver)) as first,
        an_alertmanager(second_directory, ports[1], routed_to(receiver)) as second,
        pushing(tmp_path, first, second) as targets,
    ):
        second.stop()
        put(targets, hang)
        eventually(lambda: len(first.alerts()) == 1, _LONG_S, "the alert at the peer that is up")
        second.start()
        eventually(lambda: len(second.alerts()) == 1, _LONG_S, "the alert at the other one")
        first.stop()
        first.start()
        eventually(lambda: len(first.alerts()) == 1, _LONG_S, "the alert after the loss")
