"""Captures the checkpoint of a version, and the events that it published: checkpoint-<commit>.tar.xz beside this.

    git clone . /tmp/old && cd /tmp/old && git checkout COMMIT && make dev-venv
    PYTHONPATH=tests .venv/bin/python /path/to/tests/golden/capture_checkpoint.py /path/to/checkpoint-COMMIT.tar.xz

The code of that version runs its own job on an embedded broker, with one hang open, until it has published it. An older
commit may need other imports here: the commits up to 70a1756 have `txnwatch.embedded` and no `txnwatch_demo`. Their
state is in the checkpoint directory itself, and not in a directory `state-<hash>` of it.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from support.kafka_faults import late_write_after_abort
from support.servers import connect
from support.topics import create_topic
from support.waiting import eventually
from support.watch import RunningWatch, events_of
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

EVENTS, TOPIC = "upgrade.events", "upgrade.stays"
FLAGS = ("--events-topic", EVENTS, "--topics", r"upgrade\..*", "--census-topics", r"upgrade\..*")
_FILES_OF_THE_PROCESS = {"spark.log", ".txnwatch-lock", ".txnwatch-holder"}
_WAIT_S = 60.0


def capture(directory: Path) -> bytes:
    """Runs the job; returns the value of the event. The checkpoint is in `directory / "checkpoint"`."""
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start(print)
        bootstrap = kafka.bootstrap_servers
        set_verification(bootstrap, [1], enabled=False)
        with (
            contextlib.closing(connect(kafka)) as cluster,
            RunningWatch(bootstrap, directory / "checkpoint", *FLAGS, "--trigger-ms", "1000") as running,
        ):
            (partition,) = create_topic(cluster, TOPIC)
            late_write_after_abort(cluster, "zombie", partition)
            running.until_ready()
            eventually(lambda: events_of(bootstrap, EVENTS), _WAIT_S, "the event")
            assert running.stop() == 0
        return value_of_the_event(bootstrap)


def value_of_the_event(bootstrap: str) -> bytes:
    """The only event on the topic, as it was written."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "capture"})
    consumer.assign([TopicPartition(EVENTS, 0, 0)])
    while (message := consumer.poll(_WAIT_S)) is not None:
        value = message.value()
        if message.error() is None and value is not None and b'"incident_id"' in value:
            consumer.close()
            return bytes(value)
    raise AssertionError("the event cannot be read")


def pack(state: Path, event: bytes, target: Path) -> None:
    """Writes the archive, without the files of the process and with one time for all."""

    def included(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(entry.name).name
        entry.mtime = entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return None if name in _FILES_OF_THE_PROCESS else entry

    with tarfile.open(target, "w:xz") as archive:
        archive.add(state, "checkpoint", filter=included)
        of_event = tarfile.TarInfo("event.json")
        of_event.size = len(event)
        archive.addfile(of_event, io.BytesIO(event))


def main() -> None:
    """Captures the version that is installed."""
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        event = capture(Path(directory))
        (state,) = (Path(directory) / "checkpoint").glob("state-*")
        pack(state, event, target)
    print(f"wrote {target}: {target.stat().st_size} bytes")  # noqa: T201 - it is a script


if __name__ == "__main__":
    main()
