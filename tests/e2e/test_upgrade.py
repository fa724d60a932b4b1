"""A checkpoint of another version is replaced, and the events go on: none is lost, and none is published twice.

One other version is this one with another `MEANING`: all that it stores has another version. The other one is real: the
code of an earlier commit wrote its checkpoint, and the layout of the state and of the offsets has changed since then.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.kept_checkpoint import KeptCheckpoint
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about, events_of, statuses
from txnwatch.sinks.incidents.evidence_file import EvidenceFile
from txnwatch.sinks.incidents.own_findings import StoredFindings
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.set_aside import PREVIOUS
from txnwatch.streaming.job.side_files import SideFiles
from txnwatch_demo.embedded.kafka import EmbeddedKafka

VERDICT_S = 30.0
SETTLE_S = 4.0
OTHER_VERSION = "import txnwatch.state.model.serializer as serializer\nserializer.MEANING = 0\n"


@pytest.fixture
def other_version(tmp_path: Path) -> Path:
    """A directory for PYTHONPATH that makes another version of txnwatch."""
    directory = tmp_path / "other version"
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(OTHER_VERSION)
    return directory


def evidence(checkpoint: Path) -> StoredFindings:
    return EvidenceFile(SideFiles(str(checkpoint)).evidence, pytest.fail).load()


@pytest.mark.long
def test_a_checkpoint_of_another_version_is_replaced_and_no_event_is_lost_or_repeated(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path, other_version: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, topic, checkpoint = kafka.bootstrap_servers, unique("upgrade.events"), tmp_path / "checkpoint"
    stays, ends, begins = (create_topic(cluster, unique("upgrade"))[0] for _ in range(3))
    watched = "|".join(partition.topic for partition in (stays, ends, begins))
    flags = ("--events-topic", topic, "--topics", watched, "--census-topics", watched)

    def opened(partition: TopicPartition) -> bool:
        return statuses(events_about(bootstrap, partition, topic)) == ["opened"]

    monkeypatch.setenv("PYTHONPATH", str(other_version))
    with RunningWatch(bootstrap, checkpoint, *flags) as running:
        running.until_ready()
        late_write_after_abort(cluster, unique("zombie"), stays)
        ended = late_write_after_abort(cluster, unique("zombie"), ends)
        eventually(lambda: opened(stays) and opened(ends), VERDICT_S, "the incidents of the other version")
        assert running.stop() == 0
        before, kept = events_of(bootstrap, topic), evidence(checkpoint)
        assert {one.key[1] for one in kept.evidence} == {stays, ends}

        abort_by_hand(cluster, ends, ended.producer_id)
        late_write_after_abort(cluster, unique("zombie"), begins)
        monkeypatch.delenv("PYTHONPATH")
        running.start()
        line = running.until("the state in the checkpoint has version")
        running.until_ready()
        assert line.endswith(f"kept in {checkpoint / PREVIOUS}, and the state is rebuilt from the logs")
        eventually(lambda: opened(begins), VERDICT_S, "the hang that began in between")
        eventually(lambda: len(events_about(bootstrap, ends, topic)) == 2, VERDICT_S, "the end in between")
        time.sleep(SETTLE_S)
        after = events_of(bootstrap, topic)
        assert after[: len(before)] == before
        assert statuses(events_about(bootstrap, stays, topic)) == ["opened"]
        assert statuses(events_about(bootstrap, begins, topic)) == ["opened"]
        first, last = events_about(bootstrap, ends, topic)
        assert (first.incident_id, "resolved") == (last.incident_id, last.status)
        assert len(after) == len(before) + 2
        assert running.stop() == 0

    assert {path.name for path in (checkpoint / PREVIOUS).iterdir() if not path.name.startswith(".")} >= {
        "commits",
        "offsets",
        "state",
        "metadata",
    }
    (of_before,) = (one for one in kept.evidence if one.key[1] == stays)
    assert of_before in evidence(checkpoint).evidence


@pytest.mark.long
def test_a_checkpoint_that_an_earlier_version_wrote_is_replaced_once(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    bootstrap, topic = kafka.bootstrap_servers, unique("kept.events")
    stays, begins = (create_topic(cluster, unique("kept"))[0] for _ in range(2))
    create_topic(cluster, topic, config={"cleanup.policy": "compact"})
    kept = KeptCheckpoint("70a1756", tmp_path)
    kept.move_to(cluster.refresh().cluster_id)
    zombie = late_write_after_abort(cluster, unique("zombie"), stays)
    incident_id = kept.publish_event(kafka, cluster, topic, stays, zombie)
    late_write_after_abort(cluster, unique("zombie"), begins)

    watched = f"{stays.topic}|{begins.topic}"
    flags = ("--events-topic", topic, "--topics", watched, "--census-topics", watched)
    with RunningWatch(bootstrap, kept.path, *flags) as running:
        running.until("the state is rebuilt from the logs")
        running.until_ready()
        eventually(lambda: events_about(bootstrap, begins, topic), VERDICT_S, "the hang that began in between")
        assert running.stop() == 0
        abort_by_hand(cluster, stays, zombie.producer_id)
        running.start()
        running.until_ready()
        eventually(lambda: len(events_about(bootstrap, stays, topic)) == 2, VERDICT_S, "the end of the known incident")
        assert running.stop() == 0

    assert len([line for line in running.lines if "the state is rebuilt from the logs" in line]) == 1
    assert statuses(events_about(bootstrap, begins, topic)) == ["opened"]
    assert statuses(events_about(bootstrap, stays, topic)) == ["opened", "resolved"]
    assert {event.incident_id for event in events_about(bootstrap, stays, topic)} == {incident_id}
