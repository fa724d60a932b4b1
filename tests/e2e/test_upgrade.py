"""Each version has its own state in a checkpoint, and the events go on: none is lost, and none is published twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.upgrade import Upgrade, of_another_version
from txnwatch.sinks.incidents.evidence_file import EvidenceFile
from txnwatch.state.evidence.proven_hang import StoredFindings
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.checkpoint import SideFiles
from txnwatch_demo.embedded.real_servers import EmbeddedKafka


def evidence(checkpoint: Path) -> StoredFindings:
    return EvidenceFile(SideFiles(str(checkpoint)).evidence, pytest.fail).load()


@pytest.mark.long
def test_a_new_version_builds_its_state_and_no_event_is_lost_or_repeated(
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

    with of_another_version(code, monkeypatch):
        upgrade.starts_without_an_event()
    upgrade.starts_without_an_event()
    assert [path.name for path in checkpoint.glob("state-*")] == [Path(upgrade.running.state).name]
    rebuilt = [line for line in upgrade.running.lines if "the state is rebuilt from the logs" in line]
    assert len(rebuilt) == 3, "an upgrade, a rollback and another upgrade"
