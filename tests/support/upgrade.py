"""The steps of an upgrade: incidents of another version, changes while nothing runs, and the start of this version.

The other version is this one with another `MEANING`: all that it stores has another version.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka_faults import abort_by_hand, absorbed_write, late_write_after_abort
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about, events_of, statuses
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

_OTHER_VERSION = "import txnwatch.state.model.serializer as serializer\nserializer.MEANING = 0\n"
_SETTLE_S = 4.0
_ABSORBED = ["opened", "resolved"]


@contextlib.contextmanager
def of_another_version(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is started in the block is of the other version. `directory` is for its code."""
    (directory / "sitecustomize.py").write_text(_OTHER_VERSION)
    monkeypatch.setenv("PYTHONPATH", str(directory))
    yield
    monkeypatch.delenv("PYTHONPATH")


class Upgrade:
    """One checkpoint, first of the other version, then of this one.

    Attributes:
        stays, ends, begins: a hang that stays, one that ends and one that begins while nothing runs.
        absorbed: a stray write that the other version reports.
        verdict_s: how long an incident may take.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        cluster: Cluster,
        checkpoint: Path | str,
        *flags: str,
        directory: Path | None = None,
        verdict_s: float = 30.0,
    ) -> None:
        self._bootstrap, self._cluster = kafka.bootstrap_servers, cluster
        self.topic, self.verdict_s = unique("upgrade.events"), verdict_s
        self.stays, self.ends, self.begins = (create_topic(cluster, unique("upgrade"))[0] for _ in range(3))
        (self.absorbed,) = create_topic(cluster, unique("upgrade"))
        partitions = (self.stays, self.ends, self.begins, self.absorbed)
        watched = "|".join(partition.topic for partition in partitions)
        own = ("--events-topic", self.topic, "--topics", watched, "--census-topics", watched)
        self.running = RunningWatch(self._bootstrap, checkpoint, *own, *flags, directory=directory)

    def run_the_other_version(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two hangs are published; then one of them ends and another one begins. `directory` is for its code."""
        with of_another_version(directory, monkeypatch), self.running as running:
            running.until_ready()
            late_write_after_abort(self._cluster, unique("zombie"), self.stays)
            ended = late_write_after_abort(self._cluster, unique("zombie"), self.ends)
            opened = lambda: self._is_opened(self.stays) and self._is_opened(self.ends)  # noqa: E731
            eventually(opened, self.verdict_s, "the incidents of the other version")
            absorbed_write(self._cluster, unique("stray"), self.absorbed)
            eventually(lambda: self._about(self.absorbed) == _ABSORBED, self.verdict_s, "its stray write")
            assert running.stop() == 0
        abort_by_hand(self._cluster, self.ends, ended.producer_id)
        late_write_after_abort(self._cluster, unique("zombie"), self.begins)

    def run_this_version(self) -> None:
        """It begins its own state; no event is lost, and none is published twice."""
        before = events_of(self._bootstrap, self.topic)
        with self.running as running:
            line = running.until("the state is rebuilt from the logs, and data is read from the last stable offsets")
            running.until_ready()
            assert f"the checkpoint has no {Path(running.state).name}, the state of this version" in line
            eventually(lambda: self._is_opened(self.begins), self.verdict_s, "the hang that began in between")
            eventually(lambda: len(self._about(self.ends)) == 2, self.verdict_s, "the end in between")
            time.sleep(_SETTLE_S)
            after = events_of(self._bootstrap, self.topic)
            assert running.stop() == 0
        assert after[: len(before)] == before
        assert self._about(self.stays) == ["opened"]
        assert self._about(self.begins) == ["opened"]
        first, last = events_about(self._bootstrap, self.ends, self.topic)
        assert (first.incident_id, "resolved") == (last.incident_id, last.status)
        assert self._about(self.absorbed) == _ABSORBED
        assert len(after) == len(before) + 2

    def _about(self, partition: TopicPartition) -> list[str]:
        return statuses(events_about(self._bootstrap, partition, self.topic))

    def _is_opened(self, partition: TopicPartition) -> bool:
        return self._about(partition) == ["opened"]

    def starts_without_an_event(self) -> None:
        """A start, of the version that is installed now; it adds no event."""
        before = events_of(self._bootstrap, self.topic)
        with self.running as running:
            running.until_ready()
            time.sleep(_SETTLE_S)
            assert running.stop() == 0
        assert events_of(self._bootstrap, self.topic) == before
