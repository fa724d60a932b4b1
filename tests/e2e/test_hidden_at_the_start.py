"""A topic that is not scanned and is hidden when a watch starts does not count as deleted (docs/decisions/0073)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from support.acl_recipes import PUBLISH, WATCH, Right
from support.guarded_broker import HANGING, LIVE, Guarded, guarded_broker
from support.servers import Clusters, connect
from support.topics import delete_topic
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from txnwatch.state.evidence.ending import LOG_SHOWS_MS
from txnwatch.state.model.incident import EndKind, IncidentEvent
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC
from txnwatch.state.model.values import TopicPartition

pytestmark = pytest.mark.long
SEEN = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, HANGING)
INTERVAL_MS, HANG_S, END_S = 1_000, 30.0, 120.0  # a check of an incident comes once a minute
DECIDED_S = (ABSENCES_OF_A_DELETED_TOPIC * LOG_SHOWS_MS + 5 * INTERVAL_MS) / 1_000


@pytest.fixture(scope="module")
def guarded(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(clusters, "hidden_at_start", tmp_path_factory.mktemp("hidden-at-start")) as guarded:
        guarded.grants.set((*WATCH, *PUBLISH))
        yield guarded


def test_its_hang_stays_open_until_the_topic_is_really_deleted(guarded: Guarded, tmp_path: Path) -> None:
    _, bootstrap, *connection = guarded.connection
    flags = ("--topics", LIVE, "--census-topics", HANGING, "--census-interval-ms", str(INTERVAL_MS), *connection)

    def a_watch() -> RunningWatch:
        return RunningWatch(bootstrap, tmp_path / "checkpoint", *flags)

    def last() -> IncidentEvent | None:
        return next(reversed(events_about(guarded.kafka.bootstrap_servers, TopicPartition(HANGING, 0))), None)

    with a_watch() as watch:
        watch.until_ready()
        found = eventually(last, HANG_S, "the hang")
    with guarded.grants.denied(SEEN), a_watch() as watch:
        watch.until_ready()
        time.sleep(DECIDED_S)
        hidden = last()
        assert hidden is not None
        assert (hidden.incident_id, hidden.is_open) == (found.incident_id, True)
    with a_watch() as watch, closing(connect(guarded.kafka)) as cluster:
        watch.until_ready()
        delete_topic(cluster, HANGING)
        ended = eventually(lambda: (event := last()) and not event.is_open and event, END_S, "its end")
    assert ended.resolution is not None
    assert (ended.incident_id, ended.resolution.how) == (found.incident_id, EndKind.PARTITION_GONE)
