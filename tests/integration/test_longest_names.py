"""The longest names that a broker takes, through every command: the text is short, and JSON is written once.

A command to copy has the whole name, because it would not work with a part of it. So it is counted apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from support.incidents import an_event
from support.kafka_faults import late_write
from support.raw_producer import RawProducer
from support.servers import Clusters, connect
from support.topics import commit_an_offset, create_topic
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.encoding import to_json
from txnwatch.state.model.incident import AffectedGroup, GroupState, WaitingGroup
from txnwatch.state.model.values import Offset, TopicPartition
from txnwatch.state.text import LONGEST_NAME
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import VERIFICATION

LONGEST, LONGEST_TOPIC, EVENTS = 32_700, 249, "events"  # a request has other fields beside the name
PROPERTIES = {"transaction.state.log.num.partitions": "1", VERIFICATION: "false"}
ESCAPED = 6  # characters for one of a name, in JSON
MOST_LINES, MOST_PLACES = 60, 12
LONGEST_LINE = 30 * LONGEST_NAME  # a table shows six names in a row, and an escaped character has four


class Named(NamedTuple):
    """What has the longest names of one form: a hang, an open transaction, and a group that stands before the hang."""

    partition: TopicPartition
    hung: RawProducer
    live: RawProducer
    group: str


COMMANDS: dict[str, Callable[[Named], tuple[str, ...]]] = {
    "find-hanging": lambda _: ("find-hanging",),
    "list": lambda _: ("list", "--wide"),
    "list of a producer id": lambda of: ("list", "--producer-id", str(of.hung.producer_id)),
    "describe": lambda of: ("describe", of.hung.transactional_id),
    "describe, live": lambda of: ("describe", of.live.transactional_id),
    "describe, unknown": lambda of: ("describe", f"{of.live.transactional_id[:-1]}?"),
    "describe-producers": lambda of: ("describe-producers", "--topic", of.partition.topic, "--partition", "0"),
    "explain an id": lambda of: ("explain", of.hung.transactional_id),
    "explain an id, live": lambda of: ("explain", of.live.transactional_id),
    "explain what is unknown": lambda of: ("explain", f"{of.live.transactional_id[:-1]}?"),
    "explain a producer id": lambda of: ("explain", str(of.live.producer_id)),
    "explain a partition": lambda of: ("explain", str(of.partition)),
    "explain a record": lambda of: ("explain", f"{of.partition}@0"),
    "explain a topic": lambda of: ("explain", of.partition.topic),
    "explain a group": lambda of: ("explain", "--group", of.group),
    "owners": lambda of: ("owners", of.hung.transactional_id),
    "abort": lambda of: ("abort", *of_hang(of), "--dry-run"),
    "fence": lambda of: ("fence", of.hung.transactional_id, "--dry-run"),
    "fence, live": lambda of: ("fence", of.live.transactional_id, "--dry-run"),
    "decode": lambda of: ("decode", "--transactional-id", of.live.transactional_id, "--count", "3"),
    "status": lambda _: ("status", "--events-topic", EVENTS),
    "events": lambda _: ("events", "--events-topic", EVENTS),
}


def of_hang(of: Named) -> tuple[str, ...]:
    return "--topic", of.partition.topic, "--partition", "0", "--producer-id", str(of.hung.producer_id)


@pytest.fixture(scope="module")
def names_cluster(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that takes late writes."""
    directory: Path = tmp_path_factory.mktemp("names")
    yield clusters.start("names", lambda: EmbeddedKafka(directory, properties=PROPERTIES))
    clusters.end("names")


@pytest.fixture(
    scope="module", params=[*(pytest.param(form, marks=pytest.mark.long) for form in ("a", "'")), "\x01"], ids=ascii
)
def named(request: pytest.FixtureRequest, names_cluster: EmbeddedKafka) -> Named:
    form = request.param
    with closing(connect(names_cluster)) as cluster:
        (partition,) = create_topic(cluster, f"{ord(form):03}".ljust(LONGEST_TOPIC, "t"))
        name = form * LONGEST
        hung = late_write(cluster, name, partition, commit=False)
        live = RawProducer(cluster, f"{name[:-1]}L", 600_000).init()
        live.add(partition)
        live.produce(partition)
        group = f"{name[:-1]}G"
        commit_an_offset(names_cluster, partition, group)
        an_incident(names_cluster, cluster.known.cluster_id, partition, name, group)
    return Named(partition, hung, live, group)


def an_incident(kafka: EmbeddedKafka, cluster_id: str, partition: TopicPartition, name: str, group: str) -> None:
    """What a watcher would have published."""
    stopped = AffectedGroup(group_id=group, state=GroupState.STOPPED, committed_offset=Offset(0), hidden_lag=1)
    event = an_event(
        incident_id=f"{ord(name[0]):032x}",
        cluster_id=cluster_id,
        transactional_id=name,
        topic=partition.topic,
        consumer_groups=(stopped,) * 3,
        waiting_groups=(WaitingGroup(group_id=group),),
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 9_000_000})
    producer.produce(EVENTS, key=event.incident_id.encode(), value=to_json(event))
    assert producer.flush(30.0) == 0


Told = Callable[..., str]


@pytest.fixture
def tell(names_cluster: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> Told:
    """All that a command writes."""

    def told(*arguments: str) -> str:
        assert main([*arguments, "--bootstrap-server", names_cluster.bootstrap_servers]) in {0, 1, 3, 4, 5}
        written = capsys.readouterr()
        return written.out + written.err

    return told


def without_commands(text: str) -> str:
    """The text without the commands that it suggests; one is at the end of its line."""
    return re.sub(r"`?txnwatch (explain|fence|abort|describe|list) .*", "", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_text_of_a_command_is_short(tell: Told, named: Named, command: str) -> None:
    lines = tell(*COMMANDS[command](named)).splitlines()
    assert 0 < len(lines) <= MOST_LINES
    for line in map(without_commands, lines):
        assert len(line) <= LONGEST_LINE, line[:2_000]


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_in_proportion_to_the_names_in_it(tell: Told, named: Named, command: str) -> None:
    """An id or a group has at most a dozen places: itself, the commands about it, and the sentences with a command."""
    written = tell(*COMMANDS[command](named), "--format", "json").splitlines()
    answers = [json.loads(line) for line in written if line.startswith("{")]
    assert len(answers) >= (command not in {"explain what is unknown", "describe, unknown"})
    assert max(map(len, written)) <= MOST_PLACES * ESCAPED * LONGEST
