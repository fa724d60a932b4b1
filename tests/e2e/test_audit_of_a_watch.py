"""The audit of a whole watch on a real Kafka: its metric, its view, and the incident that a finding explains."""

from __future__ import annotations

import contextlib
import json

import pytest

from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.metrics import Scrape
from support.page_client import get
from support.servers import connect
from support.shared_watch import EVENTS, SharedWatch
from support.topics import create_topic, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.state.audit.audit_check import ExposureSeverity

SEEN_S = 60.0
AUDITED_S = 180.0  # the first audit comes a minute after the watch is ready


@pytest.mark.long
def test_a_hang_and_the_finding_that_explains_it_name_each_other(
    shared_watch: SharedWatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The brokers of this watch do not verify writes, and its clients have the old protocol."""
    watch, servers = shared_watch.watch, shared_watch.kafka.bootstrap_servers
    url = watch.page_url
    with contextlib.closing(connect(shared_watch.kafka)) as cluster:
        (partition,) = create_topic(cluster, unique("audited"))
        zombie = late_write_after_abort(cluster, unique("zombie"), partition)

        def incident() -> str | None:
            rows = get(url, "/api/v1/incidents").json["rows"]
            return next((row["id"] for row in rows if row["transactional_id"] == zombie.transactional_id), None)

        hang = eventually(incident, SEEN_S, "the incident on the page")
        counts = eventually(lambda: get(url, "/api/v1/status").json["exposures"], AUDITED_S, "the first audit")
        answer = get(url, "/api/v1/audit?check=no-verification").json["answer"]
        (row,) = answer["rows"]
        assert hang in {one["id"] for one in row["incidents"]}
        assert not any("incidents" in one["what"] for one in answer["not_checked"]), "the events topic was read"
        causes = get(url, f"/api/v1/incidents/{hang}").json["answer"]["causes"]
        assert "no-verification" in {one["check"] for one in causes}
        scrape = Scrape.at(watch.metrics_url)
        for severity in ExposureSeverity:
            assert scrape.value("exposures", severity=str(severity)) == counts[severity]
        capsys.readouterr()
        assert main(["audit", "-b", servers, "--incidents", "--events-topic", EVENTS, "-o", "json"]) in {0, 1}
        by_check = {one["check"]: one for one in json.loads(capsys.readouterr().out)["rows"]}
        assert by_check["no-verification"]["severity"] == "critical"
        assert by_check["no-verification"]["incidents"] >= 1
        assert any("audit: " in line for line in watch.lines)
        abort_by_hand(cluster, partition, zombie.producer_id)
    eventually(lambda: get(url, "/api/v1/status").json["state"] == "clear", SEEN_S, "the page to be clear again")
