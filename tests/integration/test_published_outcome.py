"""The outcome that a watcher has published, in commands that cannot know it, on a broker that has restarted since."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from support.kafka_faults import late_write_after_abort
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import FAILOVER_S, create_topic, unique
from support.waiting import eventually
from txnwatch.cli.compose import searcher_of
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic
from txnwatch.state.incidents.event_builder import span_event
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.telling.commands import Origin
from txnwatch.state.telling.statements import OUTCOME_WORDS
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

EVENTS, WATCHER = "published.events", "host:/checkpoint"
DOUBT = "This command has not proven it: the data may be older than the present leader of the partition of"
NOT_YET = OUTCOME_WORDS["unknown"].safe
IF_SO = "If that is true: an ABORT marker is right."


class Restarted(NamedTuple):
    """A broker after a restart, with hangs from before it; of `told`, a watcher has published the outcome."""

    kafka: EmbeddedKafka
    told: TopicPartition
    untold: TopicPartition
    grown: TopicPartition
    committed: TopicPartition


def found_now(cluster: Cluster, at: TopicPartition) -> IncidentEvent:
    """What a watcher finds."""
    found = searcher_of(cluster, DetectionPolicy()).search([at])
    ((candidate, proof),) = found.hanging
    origin = Origin(cluster.known.cluster_id, "a:1", instance=WATCHER)
    event = span_event(origin, candidate, proof, None, wall_clock_ms())
    assert event.expected_outcome == "none"
    return replace(event, outcome_by=WATCHER)


@pytest.fixture(scope="module")
def restarted(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    directory = tmp_path_factory.mktemp("restarted")
    kafka = clusters.start("restarted", lambda: EmbeddedKafka(directory))
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    with closing(connect(kafka)) as cluster:
        create_topic(cluster, EVENTS, config={"cleanup.policy": "compact"})
        places = told, untold, grown, committed = [create_topic(cluster, unique("hung"))[0] for _ in range(4)]
        hung = {at: late_write_after_abort(cluster, unique("hung"), at) for at in places}
        commit = replace(found_now(cluster, committed), expected_outcome=ExpectedOutcome.COMMIT)
        with closing(KafkaEventsTopic({"bootstrap.servers": kafka.bootstrap_servers}, EVENTS)) as topic:
            topic.publish([found_now(cluster, told), found_now(cluster, grown), commit])
        hung[grown].produce(grown)
    kafka.stop()
    kafka.start()
    with closing(connect(kafka)) as cluster:
        names = [producer.transactional_id for producer in hung.values()]
        eventually(lambda: are_described(cluster, names), FAILOVER_S, "the coordinator to have read its log")
        for producer in hung.values():
            RawProducer(cluster, producer.transactional_id).init()  # an abort needs no fence
    yield Restarted(kafka, told, untold, grown, committed)
    clusters.end("restarted")


def are_described(cluster: Cluster, names: list[str]) -> bool:
    found = ClusterAdmin(cluster).describe_transactions(names)
    return all(isinstance(one, DescribedTransaction) for one in found.values())


Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(restarted: Restarted, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's exit code and its one row."""

    def ran(*arguments: str, events: str = EVENTS) -> tuple[int, dict[str, Any]]:
        server = ("--bootstrap-server", restarted.kafka.bootstrap_servers, "--events-topic", events)
        code = main([*arguments, *server, "--format", "json"])
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        return code, row

    return ran


def of(at: TopicPartition) -> tuple[str, ...]:
    return ("--topic", at.topic, "--partition", "0")


@pytest.mark.parametrize("command", ["explain", "find-hanging"])
def test_the_outcome_of_a_watcher_is_shown_with_its_author_and_is_only_said(
    command: str, restarted: Restarted, run: Run
) -> None:
    code, row = run(command, *of(restarted.told))
    assert (code, row["expected_outcome"]) == (0, "unknown"), "what this command knows itself"
    assert (row["published_outcome"], row["published_by"]) == ("none", WATCHER)
    assert row["outcome"].startswith(f"The watcher '{WATCHER}' said at ")
    assert OUTCOME_WORDS["none"].means in row["outcome"]
    assert DOUBT in row["outcome"]
    assert "Anyone who may write the events topic can write this." in row["outcome"]
    assert row["safe"].startswith(IF_SO)
    assert NOT_YET not in json.dumps(row), "one answer"
    assert f"--events-topic {EVENTS}" in row["next"], "the abort is published where the watcher reads it"


@pytest.mark.parametrize("command", ["explain", "find-hanging"])
def test_without_an_event_it_is_said_who_may_know_the_outcome(command: str, restarted: Restarted, run: Run) -> None:
    for at, events in ((restarted.untold, EVENTS), (restarted.told, "nothing.here")):
        _, row = run(command, *of(at), events=events)
        assert (row["expected_outcome"], row["published_outcome"], row["published_by"]) == ("unknown", None, None)
        assert row["safe"] == NOT_YET
        assert "A running watcher may know the outcome: its page and its events have it." in row["outcome"]


def test_an_outcome_of_other_data_is_not_shown_as_that_of_this_data(restarted: Restarted, run: Run) -> None:
    _, row = run("explain", *of(restarted.grown))
    assert (row["published_outcome"], row["safe"]) == (None, NOT_YET)
    assert "The event of a watcher has the outcome none, but data was written since." in row["outcome"]


def test_an_abort_shows_it_and_does_not_act_on_it(restarted: Restarted, run: Run) -> None:
    where = (*of(restarted.told), "--start-offset", "2")
    code, row = run("abort", *where, "--dry-run")
    assert code == 0
    assert f"The watcher '{WATCHER}' said at " in row["detail"]
    assert IF_SO in row["detail"]
    code, row = run("abort", *where, "--yes")
    assert (code, row["result"]) == (5, "refused (outcome_unknown)")


def test_a_commit_that_only_a_watcher_knows_is_completed_by_the_printed_command_of_a_person_who_accepts_it(
    restarted: Restarted, run: Run
) -> None:
    _, row = run("explain", *of(restarted.committed))
    assert row["published_outcome"] == "commit"
    assert row["safe"].startswith("If that is true: a COMMIT marker is right")
    printed = shlex.split(row["next"])[1:]
    assert printed[-1] == "--dry-run", "what another client may have written leads to a look"
    code, row = run(*printed)
    assert (code, row["result"]) == (0, "dry_run")
    assert row["detail"].startswith("would ask, and write the COMMIT marker if the answer is yes: ")
    assert f"The watcher '{WATCHER}' said at " in row["detail"]
    code, row = run(*printed[:-1], "--yes")
    assert (code, row["result"]) == (5, "refused (outcome_unknown)"), "its word is no proof"
    where = (*of(restarted.committed), "--start-offset", "2")
    for last in (("--yes", "--accept-unknown-outcome"), ("--dry-run",)):
        code, row = run("abort", *where, *last)
        assert (code, row["result"]) == (5, "refused (outcome_was_commit)"), "and it prevents the other marker"
    code, row = run(*printed[:-1], "--yes", "--accept-unknown-outcome")
    assert (code, row["result"]) == (0, "verified")


def test_a_commit_is_not_completed_if_a_watcher_says_that_there_was_none(restarted: Restarted, run: Run) -> None:
    where = (*of(restarted.told), "--start-offset", "2", "--result", "commit")
    for last in (("--yes", "--accept-unknown-outcome"), ("--dry-run",)):
        code, row = run("abort", *where, *last)
        assert (code, row["result"]) == (5, "refused (commit_not_proven)")
