"""A whole watch with a table of owners: who is in its events, in its metrics and on its page, and a changed table."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.http_receiver import Receiver, receiving
from support.metrics import Scrape
from support.page_client import get
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_of
from txnwatch.state.model.ownership import Advice
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

VERDICT_S = 30.0
SETTINGS = "long_running_fraction = 0.001\nlong_running_min_ms = 1000\n"


def entry(team: str, prefix: str) -> str:
    return f'[[owner]]\nteam = "{team}"\ncontact = "#{team}"\ntransactional_ids = ["{prefix}-*"]\n'


def test_an_event_the_metrics_and_the_page_have_the_owner_and_sighup_reads_the_table_again(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    (partition,) = create_topic(cluster, unique("owned"))
    topic, prefix = unique("owned.events"), unique("dwh")
    settings, owners = tmp_path / "txnwatch.toml", tmp_path / "owners.toml"
    settings.write_text(f'{SETTINGS}owners_file = "{owners}"\n')
    owners.write_text(entry("first", prefix))
    flags = ("--config", str(settings), "--events-topic", topic, "--topics", partition.topic, "--http-port", "0")
    flags = (*flags, "--census-topics", partition.topic)  # other tests leave hangs on this cluster
    with receiving() as alertmanager, a_watch(kafka, tmp_path, *flags, *pushes(alertmanager, tmp_path)) as running:
        running.until_ready()
        url = running.metrics_url
        producer = RawProducer(cluster, f"{prefix}-4-1187", timeout_ms=900_000).init()
        producer.add(partition)
        producer.produce(partition)

        (opened,) = eventually(lambda: events_of(kafka.bootstrap_servers, topic), VERDICT_S, "the transaction")
        assert (opened.verdict, opened.advice) == ("long_running", Advice.RESUME_FLINK_JOB)
        assert opened.owner is not None
        assert opened.application is not None
        assert (opened.owner.team, opened.application.framework) == ("first", "Flink")
        eventually(lambda: counted(url, "first") == 1, VERDICT_S, "its series")
        eventually(lambda: alerts(alertmanager) == ["first"], VERDICT_S, "its alert")

        owners.write_text(entry("First", prefix))
        os.kill(running.pid, signal.SIGHUP)
        running.until("nothing is reloaded: owners_file")
        assert (counted(url, "first"), row(url)["owner"]["team"]) == (1, "first")

        owners.write_text(entry("second", prefix))
        os.kill(running.pid, signal.SIGHUP)
        running.until("SIGHUP: reloaded owners_file, and the query starts again")
        eventually(lambda: counted(url, "second") == 1, VERDICT_S, "the new table")
        assert counted(url, "first") == 0
        eventually(lambda: row(url)["owner"]["contact"] == "#second", VERDICT_S, "the new table on the page")
        assert len(events_of(kafka.bootstrap_servers, topic)) == 1, "a new table publishes nothing"
        eventually(lambda: alerts(alertmanager) == ["first", "first", "second"], VERDICT_S, "the alert moves")
        producer.end(commit=True)
        (_, ended) = eventually(lambda: two(events_of(kafka.bootstrap_servers, topic)), VERDICT_S, "its end")
        assert ended.owner is not None
        assert (ended.owner.team, ended.advice) == ("second", None)


def a_watch(kafka: EmbeddedKafka, directory: Path, *flags: str) -> RunningWatch:
    return RunningWatch(kafka.bootstrap_servers, directory / "checkpoint", *flags)


def pushes(alertmanager: Receiver, directory: Path) -> tuple[str, str]:
    """The flags for a push to one Alertmanager."""
    file = directory / "push.toml"
    file.write_text(f'[[alertmanager]]\nname = "main"\nurls = ["{alertmanager.url}"]\nleast_severity = "info"\n')
    return "--push-file", str(file)


def alerts(alertmanager: Receiver) -> list[str]:
    """The owner of each alert that it has taken, in order; a renewal comes a minute later."""
    return [alert["labels"]["owner"] for request in alertmanager.taken for alert in json.loads(request.body)]


def two(events: list[Any]) -> list[Any]:
    """The events, once there are two."""
    return events if len(events) == 2 else []


def counted(url: str, team: str) -> float | None:
    return Scrape.at(url).value("open_incidents", verdict="long_running", severity="info", owner=team)


def row(url: str) -> dict[str, Any]:
    (found,) = get(url.removesuffix("/metrics"), "/api/v1/incidents").json["rows"]
    return dict(found)
