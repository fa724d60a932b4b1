"""The page of a whole watch on a real Kafka: a hang is on it when its event is, and it is gone when the hang is.

Each test leaves the page clear, because the next one begins with that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from support.browsers import a_browser, a_tab
from support.kafka_faults import abort_by_hand, late_write_after_abort, stray_write
from support.page_client import a_stream, get
from support.servers import connect
from support.shared_watch import EVENTS, SharedWatch
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningPage, events_about
from txnwatch.state.model.incident import AffectedGroup, GroupState
from txnwatch.streaming.client.cluster import Cluster

SEEN_S = 30.0


@pytest.fixture
def url(shared_watch: SharedWatch) -> str:
    return shared_watch.watch.page_url


@pytest.fixture
def cluster(shared_watch: SharedWatch) -> Iterator[Cluster]:
    """Fresh connections to the cluster of the watch."""
    with contextlib.closing(connect(shared_watch.kafka)) as found:
        yield found


def rows(url: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = get(url, "/api/v1/incidents").json["rows"]
    return {row["transactional_id"]: row for row in found}


def test_it_is_served_before_spark_runs_and_knows_nothing_then(shared_watch: SharedWatch) -> None:
    assert shared_watch.before_ready["state"] == "unknown"


def test_a_hang_is_on_the_page_and_leaves_it(url: str, cluster: Cluster) -> None:
    (partition,) = create_topic(cluster, unique("page"))
    eventually(lambda: get(url, "/api/v1/status").json["state"] == "clear", SEEN_S, "the page to be clear")
    with a_stream(url) as stream:
        stream.until("snapshot")
        producer = late_write_after_abort(cluster, unique("zombie"), partition)
        row = eventually(lambda: rows(url).get(producer.transactional_id), SEEN_S, "the incident on the page")
        assert row["places"] == [str(partition)]
        step, if_replicas_lack = row["steps"]
        assert if_replicas_lack["command"] is None
        assert f"txnwatch abort --topic {partition.topic} --partition 0 --start-offset 2" in step["command"]
        lane = eventually(
            lambda: get(url, "/api/v1/snapshot").json["picture"]["lanes"].get(str(partition)), SEEN_S, "its lane"
        )
        assert (lane["holder"]["phase"], lane["hidden"]) == ("hanging", 1)
        found = get(url, f"/api/v1/incidents/{row['id']}").json["answer"]
        assert [one["barrier"] for one in found["proof"]["looks"]] == sorted(
            one["barrier"] for one in found["proof"]["looks"]
        )
        times = [one[listed] for one in found["proof"]["looks"] for listed in ("data_listed_ms", "log_listed_ms")]
        assert times == sorted(times), "both looks have their times"
        assert get(url, "/").text.startswith("1 partition stands still.")
    abort_by_hand(cluster, partition, producer.producer_id)
    eventually(lambda: get(url, "/api/v1/status").json["state"] == "clear", SEEN_S, "the page to be clear again")


def test_a_group_of_a_first_deployment_is_named_by_the_event_and_on_the_page(
    shared_watch: SharedWatch, url: str, cluster: Cluster
) -> None:
    """Its member has the partition, nothing was ever committed, and the partition hangs from its first record on."""
    (partition,) = create_topic(cluster, unique("first"))
    group, kafka = unique("first-deployment"), shared_watch.kafka.bootstrap_servers
    servers = {"bootstrap.servers": kafka, "group.id": group, "enable.auto.commit": False}
    with contextlib.closing(Consumer({**servers, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([partition.topic])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), SEEN_S, "the member to join")
        producer = stray_write(cluster, unique("zombie"), partition)
        row = eventually(lambda: rows(url).get(producer.transactional_id), SEEN_S, "the incident on the page")
    assert row["at_risk"] == [group]
    (opened,) = events_about(kafka, partition, EVENTS)
    assert (opened.txn_start_offset, opened.hidden_records) == (0, 1)
    (named,) = opened.consumer_groups
    assert named == AffectedGroup(group_id=group, state=GroupState.AT_RISK, committed_offset=None, hidden_lag=1)
    abort_by_hand(cluster, partition, producer.producer_id)
    eventually(lambda: get(url, "/api/v1/status").json["state"] == "clear", SEEN_S, "the page to be clear again")


def test_a_browser_sees_the_hang_come_and_go(url: str, cluster: Cluster) -> None:
    (partition,) = create_topic(cluster, unique("page"))
    with a_browser() as browser, a_tab(browser, url) as tab:
        tab.until("All clear.", within_s=SEEN_S)
        producer = late_write_after_abort(cluster, unique("zombie"), partition)
        tab.until(f"{partition} for", within_s=SEEN_S)
        since = time.monotonic()
        abort_by_hand(cluster, partition, producer.producer_id)
        tab.until("All clear.", within_s=SEEN_S)
        assert time.monotonic() - since < SEEN_S
        tab.until(producer.transactional_id, "table")
        assert tab.said == []


def test_a_page_elsewhere_shows_the_same(shared_watch: SharedWatch, url: str, cluster: Cluster) -> None:
    (partition,) = create_topic(cluster, unique("elsewhere"))
    name, flags = (
        "/c/eu/api/v1",
        ("--watcher", f"eu={url}", "-b", shared_watch.kafka.bootstrap_servers, *shared_watch.places[:2]),
    )
    with RunningPage(*flags) as page:
        eventually(lambda: get(page.url, f"{name}/status").json["state"] == "clear", SEEN_S, "all clear")
        producer = late_write_after_abort(cluster, unique("zombie"), partition)

        def same() -> Any:
            picture = get(page.url, f"{name}/snapshot").json["picture"]
            lane = picture["lanes"].get(str(partition))
            is_whole = lane is not None and lane["holder"]["phase"] == "hanging" and lane["end"] is not None
            return picture if is_whole else None

        elsewhere = eventually(same, SEEN_S, "the same lane elsewhere")
        lane = elsewhere["lanes"][str(partition)]
        own = get(url, "/api/v1/snapshot").json["picture"]["lanes"][str(partition)]
        assert (lane["last_stable"], lane["end"], lane["hidden"]) == (own["last_stable"], own["end"], own["hidden"])
        (row,) = elsewhere["incidents"].values()
        assert "txnwatch abort " in rows(url)[producer.transactional_id]["steps"][0]["command"]
        assert row["steps"][0]["command"].startswith("txnwatch explain "), (
            "what another process tells is looked at first"
        )
        abort_by_hand(cluster, partition, producer.producer_id)
        eventually(lambda: get(page.url, f"{name}/status").json["state"] == "clear", SEEN_S, "all clear")


def test_sighup_reads_the_clusters_again_and_an_error_changes_nothing(tmp_path: Path) -> None:
    """No watcher is needed: a cluster whose watcher does not answer is on the page, too."""
    file = tmp_path / "clusters.toml"

    def write(*names: str) -> None:
        watcher = 'watchers = ["http://127.0.0.1:1/"]'
        file.write_text("".join(f'[[cluster]]\nname = "{name}"\n{watcher}\n' for name in names))

    write("eu", "us")
    with RunningPage("--clusters-file", str(file)) as page:
        url = page.url
        page.until("asking the watchers of eu, us")
        file.write_text("[[cluster]]")
        os.kill(page.pid, signal.SIGHUP)
        assert "entry 1" in page.until("SIGHUP: nothing is reloaded: ")
        assert clusters_on(url) == {"eu", "us"}
        write("us", "asia")
        os.kill(page.pid, signal.SIGHUP)
        page.until("SIGHUP: asking the watchers of us, asia; new or changed: asia; no longer as before: eu")
        eventually(lambda: clusters_on(url) == {"us", "asia"}, SEEN_S, "the new clusters")
        assert page.stop() == 0


def clusters_on(url: str) -> set[str]:
    return {row["name"] for row in get(url, "/api/v1/clusters").json["rows"]}
