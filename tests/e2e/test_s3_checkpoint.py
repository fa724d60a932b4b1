"""A checkpoint on S3: one driver at a time, a takeover after kill -9, and an upgrade."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.bad_inputs import BadInputs
from support.kafka_faults import late_write_after_abort
from support.s3 import EmbeddedS3, s3_classpath
from support.topics import create_topic, unique
from support.upgrade import Upgrade
from support.waiting import eventually
from support.watch import RunningWatch, events_about, statuses
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long
EVENTS = "s3.events"
VERDICT_S, ENDS_S = 180.0, 240.0


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3]:
    with EmbeddedS3(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture(autouse=True)
def _classpath(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_DIST_CLASSPATH", s3_classpath())


def config(s3: EmbeddedS3, directory: Path, **changed: str) -> tuple[str, str]:
    """The flag with a file of Spark's settings for S3; a changed key is written with underscores."""
    settings = {**s3.settings(), **{key.replace("_", "."): value for key, value in changed.items()}}
    file = directory / "txnwatch.toml"
    lines = (f'"spark.hadoop.{key}" = "{value}"' for key, value in settings.items())
    file.write_text("\n".join(["[spark_conf]", *lines]) + "\n")
    return "--config", str(file)


def test_one_driver_at_a_time_and_another_one_takes_over_after_kill_9(
    kafka: EmbeddedKafka, cluster: Cluster, s3: EmbeddedS3, tmp_path: Path
) -> None:
    partitions = [create_topic(cluster, unique("hung"))[0] for _ in range(2)]
    watched = "|".join(one.topic for one in partitions)
    flags = ("--events-topic", EVENTS, "--topics", watched, "--census-topics", watched, *config(s3, tmp_path))

    def until_opened(number: int) -> None:
        late_write_after_abort(cluster, unique("zombie"), partitions[number])
        found = lambda: events_about(kafka.bootstrap_servers, partitions[number], EVENTS)  # noqa: E731
        assert eventually(found, VERDICT_S, f"an incident about {partitions[number]}")[0].verdict == "hanging"

    first = RunningWatch(kafka.bootstrap_servers, s3.uri("lease"), *flags).start()
    try:
        first.until_ready()
        until_opened(0)
        second = ended(first.command)
        assert len(second.stderr.splitlines()) == 1, second.stderr
        assert "is in use by process" in second.stderr
        assert second.returncode == 1
    finally:
        first.kill()

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with RunningWatch(kafka.bootstrap_servers, s3.uri("lease"), *flags, directory=elsewhere) as taken_over:
        taken_over.until("has not renewed its lease of the checkpoint")
        taken_over.until_ready()
        until_opened(1)
        assert taken_over.stop() == 0
    for partition in partitions:
        assert statuses(events_about(kafka.bootstrap_servers, partition, EVENTS)) == ["opened"]


def test_the_state_of_another_version_is_replaced_and_no_event_is_lost_or_repeated(
    kafka: EmbeddedKafka, cluster: Cluster, s3: EmbeddedS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = config(s3, tmp_path)
    upgrade = Upgrade(kafka, cluster, s3.uri("upgrade"), *flags, directory=tmp_path, verdict_s=VERDICT_S)
    upgrade.run_the_other_version(tmp_path, monkeypatch)
    upgrade.run_this_version()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"fs_s3a_create_conditional_enabled": "false"}, "its lease cannot be written: "),
        ({"fs_s3a_endpoint": "http://127.0.0.1:9"}, "the file system of --checkpoint cannot be used"),
    ],
    ids=["without conditional writes", "no server"],
)
def test_a_store_that_cannot_be_used_ends_with_one_line(
    kafka: EmbeddedKafka, s3: EmbeddedS3, changed: dict[str, str], expected: str, tmp_path: Path
) -> None:
    flags = ("--events-topic", EVENTS, *config(s3, tmp_path, **changed))
    done = ended(RunningWatch(kafka.bootstrap_servers, s3.uri("refused"), *flags).command)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert expected in done.stderr
    assert done.returncode == 1


def test_a_store_that_ignores_the_conditions_of_a_write(
    kafka: EmbeddedKafka, tmp_path: Path, bad_inputs: BadInputs
) -> None:
    with EmbeddedS3(tmp_path / "s3", is_conditional=False) as store:
        flags = ("--events-topic", EVENTS, *config(store, tmp_path))
        done = ended(RunningWatch(kafka.bootstrap_servers, store.uri("refused"), *flags).command)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "its file system replaces a file although it exists" in done.stderr
    assert done.returncode == 1
    bad_inputs.keep("Checkpoints", done.stderr, before="on S3, ", code=done.returncode)


def ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What a start ends with."""
    environ = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=ENDS_S, env=environ)
