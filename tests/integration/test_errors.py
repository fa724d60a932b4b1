"""What stands in the way is one clear line and an exit code, before anything slow starts and without a traceback."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from support.acl_recipes import Grants, Right
from support.bad_inputs import BadInputs
from support.log_lines import log_restored
from support.problems import a_problem
from support.servers import Clusters, connect
from support.topics import commit_an_offset, create_topic, unique
from txnwatch.cli.main import main
from txnwatch.cli.output import FAILURE, USAGE
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.job.checkpoint import locked
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
EVERYBODY = "ANONYMOUS"


@pytest.fixture(scope="module")
def guarded(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker with an authorizer; without an ACL, everything is allowed."""
    directory = tmp_path_factory.mktemp("guarded")
    kafka = clusters.start("guarded", lambda: EmbeddedKafka(directory, properties=AUTHORIZER))
    with contextlib.closing(connect(kafka)) as cluster:
        for topic in ("readable", TRANSACTION_STATE_TOPIC):
            create_topic(cluster, topic)
    yield kafka
    clusters.end("guarded")


def describe(topic: str) -> Right:
    return Right(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Runs a command; returns its exit code and the one line it printed to stderr."""
    code = main(["run", *arguments])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return code, lines[0]


def test_a_closed_port(capsys: pytest.CaptureFixture[str], tmp_path: Path, bad_inputs: BadInputs) -> None:
    code, line = run(capsys, "--bootstrap-server", "127.0.0.1:1", "--checkpoint", str(tmp_path / "checkpoint"))
    assert code == FAILURE
    assert "no broker answered: cannot connect to broker 127.0.0.1:1" in line
    bad_inputs.keep("Brokers", line, code=code)


def test_the_error_that_ends_a_run_with_a_json_log_is_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = ("--bootstrap-server", "127.0.0.1:1", "--checkpoint", str(tmp_path / "checkpoint"))
    with log_restored():
        code, line = run(capsys, *flags, "--log-format", "json")
    written = json.loads(line)
    assert (code, written["level"]) == (FAILURE, "error")
    assert written["message"].startswith("no broker answered: cannot connect to broker 127.0.0.1:1")


def test_an_unknown_host(capsys: pytest.CaptureFixture[str], tmp_path: Path, bad_inputs: BadInputs) -> None:
    code, line = run(capsys, "--bootstrap-server", "no-such-host.invalid:9092", "--checkpoint", str(tmp_path))
    assert code == FAILURE
    assert "cannot connect to broker no-such-host.invalid:9092" in line
    bad_inputs.keep("Brokers", line, code=code)


BAD_SETTINGS: list[tuple[list[str], str]] = [
    (["--trigger-ms", "soon"], "trigger_ms: expected a valid integer"),
    (["--topics", "("], "topics: expected a regular expression"),
    (
        ["--events-format", "xml"],
        "events_format: expected 'json', 'avro' or 'confluent-avro', found 'xml' from flag",
    ),
    (
        ["--bootstrap-server", "nowhere"],
        "bootstrap_server: expected host:port, several of them comma-separated, found 'nowhere' from flag",
    ),
    (["--redis-url", "redis://127.0.0.1:notaport/0"], "redis_url: expected redis://"),
    (["--events-topic", "bad topic!"], "events_topic: expected a topic's name"),
    (["--events-topic", "__transaction_state"], "events_topic: expected a topic of its own"),
    (["--checkpoint", ""], "checkpoint: expected a text that is not empty, found '' from flag"),
    (["--state-partitions", "2147483647"], "state_partitions: expected less than or equal to 1000"),
    (["--state-partitions", "0"], "state_partitions: expected greater than 0"),
    (["--command-config", "/no/such/file"], "--command-config /no/such/file"),
    (["--config", "/no/such/file"], "--config /no/such/file"),
]


@pytest.mark.parametrize(("flags", "expected"), BAD_SETTINGS, ids=[" ".join(flags) for flags, _ in BAD_SETTINGS])
def test_a_bad_setting_names_key_value_and_source(
    capsys: pytest.CaptureFixture[str], flags: list[str], expected: str, bad_inputs: BadInputs
) -> None:
    code, line = run(capsys, "--bootstrap-server", "127.0.0.1:1", *flags)
    assert code == USAGE
    assert expected in line
    bad_inputs.keep("Settings", line, code=code)


def test_no_bootstrap_server_at_all(capsys: pytest.CaptureFixture[str], bad_inputs: BadInputs) -> None:
    code, line = run(capsys)
    assert code == USAGE
    assert "give --bootstrap-server, TXNWATCH_BOOTSTRAP_SERVER or a line in the file" in line
    bad_inputs.keep("Settings", line, code=code)


def test_a_checkpoint_of_another_cluster(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, tmp_path: Path, bad_inputs: BadInputs
) -> None:
    offset = {**SourceOffset.beginning().to_json(), "cluster_id": "another"}
    offsets = tmp_path / "state-0123abcd" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "12").write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    code, line = run(capsys, "--bootstrap-server", kafka.bootstrap_servers, "--checkpoint", str(tmp_path))
    assert code == FAILURE
    assert "was written for cluster another, but the brokers answer for cluster" in line
    bad_inputs.keep("Checkpoints", line, code=code)


def test_a_checkpoint_of_another_program(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, tmp_path: Path, bad_inputs: BadInputs
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"orders":{"0":12}}')
    code, line = run(capsys, "--bootstrap-server", kafka.bootstrap_servers, "--checkpoint", str(tmp_path))
    assert code == FAILURE
    assert line.endswith("found the checkpoint of another program: give txnwatch a directory of its own")
    bad_inputs.keep("Checkpoints", line, code=code)


def test_a_checkpoint_that_is_in_use(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, tmp_path: Path, bad_inputs: BadInputs
) -> None:
    with locked(str(tmp_path)):
        code, line = run(capsys, "--bootstrap-server", kafka.bootstrap_servers, "--checkpoint", str(tmp_path))
    assert code == FAILURE
    assert "is in use by process" in line
    bad_inputs.keep("Checkpoints", line, code=code)


def test_a_coordinators_log_that_may_not_be_seen(
    capsys: pytest.CaptureFixture[str], guarded: EmbeddedKafka, tmp_path: Path, bad_inputs: BadInputs
) -> None:
    flags = ("--checkpoint", str(tmp_path), "--topics", "readable", "--coordinator-view", "log")
    with Grants(guarded.bootstrap_servers, EVERYBODY).denied(describe(TRANSACTION_STATE_TOPIC)):
        code, line = run(capsys, "--bootstrap-server", guarded.bootstrap_servers, *flags)
    assert code == FAILURE
    assert "topic __transaction_state: expected the rights DESCRIBE and READ, found neither" in line
    bad_inputs.keep("Rights and topics", line, code=code)


def test_events_of_a_topic_that_is_not_there(
    capsys: pytest.CaptureFixture[str], kafka: EmbeddedKafka, bad_inputs: BadInputs
) -> None:
    topic = unique("nothing-here")
    code = main(["events", "--bootstrap-server", kafka.bootstrap_servers, "--events-topic", topic])
    (line,) = capsys.readouterr().err.splitlines()
    assert code == FAILURE
    assert f"events topic '{topic}'" in line
    assert "has `txnwatch run` been started on this cluster?" in line
    bad_inputs.keep("Rights and topics", line, code=code)


def test_a_topic_that_is_hidden_while_it_is_watched_is_not_gone(guarded: EmbeddedKafka) -> None:
    with contextlib.closing(connect(guarded)) as cluster:
        assert not cluster.refresh().topics["readable"].is_hidden
        with Grants(guarded.bootstrap_servers, EVERYBODY).denied(describe("readable")):
            looks = [cluster.refresh(["never-there"]).topics for _ in range(3)]
            places = TopicPartition("readable", 0), TopicPartition("never-there", 0)
            problems = [one.problem for one in ClusterAdmin(cluster).read_partitions(places).values()]
        assert [topics["readable"].is_hidden for topics in looks] == [True] * 3
        assert "never-there" not in looks[0]
        hidden = a_problem("TOPIC_AUTHORIZATION_FAILED").with_right("DESCRIBE on the topic (READ includes it)")
        assert problems == [hidden, a_problem("UNKNOWN_TOPIC_OR_PARTITION")]
        assert not cluster.refresh().topics["readable"].is_hidden


def test_a_group_that_may_not_be_described_is_a_problem_that_names_the_right(guarded: EmbeddedKafka) -> None:
    partition = TopicPartition("readable", 0)
    for name in ("shown", "kept"):
        commit_an_offset(guarded, partition, name, 5)
    Grants(guarded.bootstrap_servers, "somebody").add(Right(AclOperation.DESCRIBE, ResourceType.GROUP, "kept"))
    with contextlib.closing(connect(guarded)) as cluster:
        found = ClusterGroups(cluster).committed_offsets([partition])
    assert [one.group_id for one in found.offsets[partition]] == ["shown"]
    (problem,) = found.problems
    assert "DESCRIBE on the group is missing" in problem
