"""The history of a whole watch on a real Kafka: a hang is in it while it stands, and with its end after it."""

from __future__ import annotations

from typing import Any

from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.page_client import get
from support.servers import connect
from support.shared_watch import SharedWatch
from support.topics import create_topic, unique
from support.waiting import eventually

SEEN_S = 60.0  # the numbers are made anew after at most 22 s


def row_of(url: str, transactional_id: str) -> dict[str, Any] | None:
    """The incident of an id in the history, once the events topic is read."""
    found = get(url, "/api/v1/history?days=1").json["answer"]
    rows = found["incidents"] if found["state"] == "read" else []
    return next((row for row in rows if row["transactional_id"] == transactional_id), None)


def test_a_hang_and_its_end_are_in_the_history(shared_watch: SharedWatch) -> None:
    url, cluster = shared_watch.watch.page_url, connect(shared_watch.kafka)
    try:
        (partition,) = create_topic(cluster, unique("past"))
        eventually(lambda: get(url, "/api/v1/status").json["state"] == "clear", SEEN_S, "the page to be clear")
        producer = late_write_after_abort(cluster, unique("zombie"), partition)
        name = producer.transactional_id
        standing = eventually(lambda: row_of(url, name), SEEN_S, "the hang in the history")
        assert (standing["tag"], standing["places"], standing["how"]) == ("HANGING", [str(partition)], "still open")
        assert standing["ended_ms"] is None

        def ended() -> dict[str, Any] | None:
            row = row_of(url, name)
            return row if row is not None and row["ended_ms"] is not None else None

        abort_by_hand(cluster, partition, producer.producer_id)
        over = eventually(ended, SEEN_S, "its end in the history")
    finally:
        cluster.close()
    assert (over["id"], over["since_ms"]) == (standing["id"], standing["since_ms"]), "one incident, counted once"
    assert over["how"].startswith("aborted")
    assert over["ended_ms"] > over["since_ms"]
    lines = [line for line in get(url, "/api/v1/history.csv?days=1").text.splitlines() if over["id"] in line]
    assert len(lines) == 1
    assert name in lines[0]
    assert over["id"] in get(url, "/history").text, "as Markdown, which curl gets"
    day = get(url, "/api/v1/snapshot").json["picture"]["day"]
    assert day["opened"] >= 1
    eventually(lambda: get(url, "/api/v1/status").json["state"] == "clear", SEEN_S, "the page to be clear again")
