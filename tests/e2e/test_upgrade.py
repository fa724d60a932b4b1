"""Each version has its own state in a checkpoint, and the events go on: none is lost, and none is published twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.kept_checkpoint import KeptCheckpoint
from support.topics import create_topic, unique
from support.upgrade import Upgrade, of_another_version
from support.waiting import eventually
from support.watch import RunningWatch, events_about, statuses
from txnwatch.sinks.incidents.evidence_file import EvidenceFile
from txnwatch.state.evidence.proven_hang import StoredFindings
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.checkpoint import SideFiles
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

VERDICT_S = 30.0


def evidence(checkpoint: Path) -> StoredFindings:
    return EvidenceFile(SideFiles(str(checkpoint)).evidence, pytest.fail).load()


@pytest.mark.long
def test_a_new_version_continues_and_no_event_is_lost_or_repeated(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, code = tmp_path / "checkpoint", tmp_path / "other version"
    code.mkdir()
    upgrade = Upgrade(kafka, cluster, checkpoint)
    upgrade.run_the_other_version(code, monkeypatch)
    kept = evidence(checkpoint)
    assert {one.key[1] for one in kept.evidence} == {upgrade.stays, upgrade.ends}
    upgrade.run_this_version()

    (of_before,) = (one for one in kept.evidence if one.key[1] == upgrade.stays)
    assert of_before in evidence(checkpoint).evidence

    before = batches_of(checkpoint)
    assert set(before) > {Path(upgrade.running.state).name}
    with of_another_version(code, monkeypatch):
        added = upgrade.starts()
    # The state of the earlier version has read the log from before the hang, so it knows the outcome.
    assert [(event.topic, event.status) for event in added] == [(upgrade.begins.topic, "updated")]
    assert added[0].expected_outcome is not ExpectedOutcome.UNKNOWN
    upgrade.starts_without_an_event()
    assert rebuilt(upgrade.running) == 1, "after a rollback each version continues from its own state"
    after = batches_of(checkpoint)
    assert all(after[name] > before[name] for name in before)


def batches_of(checkpoint: Path) -> dict[str, int]:
    """The number of the last micro-batch of each state."""
    return {
        path.name: max(int(file.name) for file in (path / "commits").iterdir() if file.name.isdigit())
        for path in checkpoint.glob("state-*")
    }


def rebuilt(running: RunningWatch) -> int:
    return len([line for line in running.lines if "the state is rebuilt from the logs" in line])


@pytest.mark.long
def test_a_state_that_an_earlier_version_wrote_is_continued_once(
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

    assert rebuilt(running) == 1
    assert statuses(events_about(bootstrap, begins, topic)) == ["opened"]
    assert statuses(events_about(bootstrap, stays, topic)) == ["opened", "resolved"]
    assert {event.incident_id for event in events_about(bootstrap, stays, topic)} == {incident_id}
