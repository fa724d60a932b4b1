"""txnwatch and kafka-transactions.sh on one broker: every subcommand and flag, the same answers, and the differences.

What comes of it is docs/kafka-transactions.md; `--write-comparison` writes it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.kafka_faults import late_write, stray_write
from support.raw_producer import RawProducer
from support.servers import connect
from support.tool_runs import Ran, run_tool
from support.topics import create_topic, unique
from txnwatch.cli.abort import NOT_TAKEN
from txnwatch.cli.main import main, parser
from txnwatch.state.model.values import TopicPartition
from txnwatch_demo.embedded.jars import KAFKA_VERSION
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

PAGE = Path(__file__).parents[2] / "docs" / "kafka-transactions.md"
SUBCOMMANDS = ("list", "describe", "describe-producers", "find-hanging", "abort", "forceTerminateTransaction")
OLD_MS = 20 * 60_000
OURS = {"forceTerminateTransaction": "fence"}  # by the name in Kafka's tool
FLAGS = {"--transactionalId": "--transactional-id"}
Rows = list[dict[str, Any]]

DIFFERENCES = {
    "list": "With `--duration-filter` txnwatch lists only open transactions; Kafka's tool also lists idle ids and ids "
    "with a complete transaction. If a broker is too old for a filter (the duration needs Kafka 3.8, the pattern "
    "4.1), txnwatch requests all ids and filters them itself.",
    "describe": "For a complete transaction txnwatch shows how long it took; Kafka's tool shows the time since its "
    "start. txnwatch also shows the last update (KIP-994), from the coordinators' log.",
    "describe-producers": "txnwatch also shows the transactional id and the state of each producer.",
    "find-hanging": "Kafka's tool needs a broker or a topic, and by default ignores a transaction with a write in the "
    "last 15 minutes. txnwatch needs neither: it checks all partitions, and proves a hang that is one second old. "
    "`--broker-id` selects the partitions that the broker leads; Kafka's tool asks the broker about all its replicas, "
    "which may be behind. If a partition does not answer, txnwatch lists it as not checked and continues; Kafka's "
    "tool stops. txnwatch names the transactional ids. It also shows late and long running transactions, each by "
    "its own timeout, and stuck transactions. It counts what a flag excludes. Its table names the consumer groups that "
    "stand still, and has the other columns of Kafka's tool only with `--wide`; JSON always has all fields.",
    "abort": "txnwatch proves the hang before it writes the marker, and reads the partition again after it: see "
    "[abort.md](abort.md). It reads both epochs from the leader, and never takes them from the user.",
    "forceTerminateTransaction": "The command of txnwatch is `fence`. It shows what it ends, and asks. It keeps the "
    "timeout of the id, or sends the maximum of its coordinator if that is smaller. It does not create an id that does "
    "not exist, and with `--producer-epoch` leaves an application alone that has started again. Kafka's tool has this "
    "command since 4.1.",
}


@dataclass(frozen=True)
class Scene:
    """What there is to be asked about."""

    prefix: str
    complete: str
    empty: str
    opened: str
    here: TopicPartition
    there: TopicPartition


@pytest.fixture(scope="module")
def scene(kafka: EmbeddedKafka) -> Scene:
    cluster = connect(kafka)
    prefix = unique("compared")
    here, there = create_topic(cluster, unique("compared"), 2)
    complete, empty, opened = (f"{prefix}-{name}" for name in ("complete", "empty", "open"))
    RawProducer(cluster, empty).init()
    late_write(cluster, complete, here, commit=False)
    owner = RawProducer(cluster, opened, 600_000).init()
    owner.add(there)
    owner.produce(there)
    stray = stray_write(cluster, f"{prefix}-stray", there)
    assert stray.producer_id >= 0
    # once a hang that is old enough for the tool's default, by its client's clock
    old = RawProducer(cluster, f"{prefix}-old", 600_000).init()
    old.produce(here, timestamp_ms=time.time_ns() // 1_000_000 - OLD_MS)
    cluster.close()
    return Scene(prefix, complete, empty, opened, here, there)


@pytest.fixture(scope="module")
def theirs(kafka: EmbeddedKafka, scene: Scene) -> dict[str, Ran]:
    """Every answer of Kafka's tool, in one start of a JVM."""
    topic = scene.here.topic
    asked = {
        **{f"{name} --help": [name, "--help"] for name in SUBCOMMANDS},
        "list": ["list"],
        "list pattern": ["list", "--transactional-id-pattern", f"{scene.prefix}-[ce].*"],
        "list duration": ["list", "--duration-filter", "0"],
        "describe open": ["describe", "--transactional-id", scene.opened],
        "describe complete": ["describe", "--transactional-id", scene.complete],
        "describe nobody": ["describe", "--transactional-id", "nobody-at-all"],
        "describe-producers": ["describe-producers", "--topic", topic, "--partition", "0"],
        "describe-producers broker": [
            *("describe-producers", "--topic", topic, "--partition", "1", "--broker-id", "1"),
        ],
        "find topic": ["find-hanging", "--topic", topic, "--max-transaction-timeout", "0"],
        "find partition": ["find-hanging", "--topic", topic, "--partition", "1", "--max-transaction-timeout", "0"],
        "find broker": ["find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"],
        "find old": ["find-hanging", "--topic", topic, "--max-transaction-timeout", "15"],
        "find default": ["find-hanging", "--topic", topic],
        "find all": ["find-hanging"],
    }
    answers = run_tool("TransactionsCommand", kafka.bootstrap_servers, list(asked.values()))
    return dict(zip(asked, answers, strict=True))


@pytest.fixture
def ours(kafka: EmbeddedKafka, scene: Scene, capsys: pytest.CaptureFixture[str]) -> Callable[..., Rows]:
    """Asks us; transactions of other tests on this cluster may not be provable, and are not compared."""

    def ask(*arguments: str) -> Rows:
        code = main([*arguments, "--bootstrap-server", kafka.bootstrap_servers, "--format", "json"])
        answer = json.loads(capsys.readouterr().out)
        missing = [one["what"] for one in answer["not_checked"]]
        assert (code, answer["complete"]) == (1 if missing else 0, not missing)
        ids = [what for what in missing if what.startswith("transactional id ") and scene.prefix not in what]
        assert missing == ids, answer["not_checked"]
        rows: Rows = answer["rows"]
        return rows

    return ask


def compared(rows: Rows, keys: dict[str, str]) -> list[tuple[str, ...]]:
    """Rows of ours under their headings, as their tool prints cells."""
    return sorted(tuple(cell(row[key]) for key in keys.values()) for row in rows)


def cell(value: Any) -> str:
    if value is None:
        return "None"
    return ",".join(value) if isinstance(value, list) else str(value)


def their_cell(heading: str, text: str) -> str:
    """Their tool prints Kafka's -1 for some values that do not exist; ours is null."""
    return "None" if text == "-1" and heading in MINUS_ONE_FOR_NONE else text


def same(ran: Ran, rows: Rows, keys: dict[str, str], mine: Callable[[dict[str, str]], bool] = lambda _: True) -> None:
    assert ran.code == 0, ran.text
    expected = sorted(tuple(their_cell(heading, row[heading]) for heading in keys) for row in ran.rows if mine(row))
    assert expected, "nothing to compare"
    assert compared(rows, keys) == expected


LIST = {
    "TransactionalId": "transactional_id",
    "Coordinator": "coordinator",
    "ProducerId": "producer_id",
    "TransactionState": "transaction_state",
}
DESCRIBE = {
    "CoordinatorId": "coordinator_id",
    "TransactionalId": "transactional_id",
    "ProducerId": "producer_id",
    "ProducerEpoch": "producer_epoch",
    "TransactionState": "transaction_state",
    "TransactionTimeoutMs": "transaction_timeout_ms",
    "CurrentTransactionStartTimeMs": "current_transaction_start_time_ms",
    "TopicPartitions": "topic_partitions",
}
PRODUCERS = {
    "ProducerId": "producer_id",
    "ProducerEpoch": "producer_epoch",
    "LatestCoordinatorEpoch": "latest_coordinator_epoch",
    "LastSequence": "last_sequence",
    "LastTimestamp": "last_timestamp_ms",
    "CurrentTransactionStartOffset": "current_transaction_start_offset",
}
FOUND = {
    "Topic": "topic",
    "Partition": "partition",
    "ProducerId": "producer_id",
    "ProducerEpoch": "producer_epoch",
    "CoordinatorEpoch": "coordinator_epoch",
    "StartOffset": "start_offset",
    "LastTimestamp": "last_timestamp_ms",
}
MINUS_ONE_FOR_NONE = frozenset({"LatestCoordinatorEpoch", "CoordinatorEpoch", "LastSequence", "LastTimestamp"})
COLUMNS = {"list": LIST, "describe": DESCRIBE, "describe-producers": PRODUCERS, "find-hanging": FOUND}


def test_list(theirs: dict[str, Ran], ours: Callable[..., Rows], scene: Scene) -> None:
    mine = [row for row in ours("list") if row["transactional_id"].startswith(scene.prefix)]
    same(theirs["list"], mine, LIST, lambda row: row["TransactionalId"].startswith(scene.prefix))
    same(theirs["list pattern"], ours("list", "--transactional-id-pattern", f"{scene.prefix}-[ce].*"), LIST)


def test_a_duration_filter_shows_what_is_open_and_theirs_what_is_not(
    theirs: dict[str, Ran], ours: Callable[..., Rows], scene: Scene
) -> None:
    names = {row["transactional_id"] for row in ours("list", "--duration-filter", "0")}
    listed = {row["TransactionalId"] for row in theirs["list duration"].rows}
    assert scene.opened in names
    assert {scene.complete, scene.empty}.isdisjoint(names)
    assert {scene.complete, scene.empty, scene.opened} <= listed
    assert ours("list", "--duration-filter", str(10**9)) == []


def test_describe(theirs: dict[str, Ran], ours: Callable[..., Rows], scene: Scene) -> None:
    same(theirs["describe open"], ours("describe", "--transactional-id", scene.opened), DESCRIBE)
    rows = ours("describe", "--transactional-id", scene.complete)
    same(theirs["describe complete"], rows, DESCRIBE)
    assert rows[0]["transaction_duration_ms"] < int(theirs["describe complete"].rows[0]["TransactionDurationMs"])
    assert (
        rows[0]["last_update_time_ms"] - rows[0]["current_transaction_start_time_ms"]
        == rows[0]["transaction_duration_ms"]
    )


def test_describe_of_an_unknown_id_is_a_failure_in_both(
    theirs: dict[str, Ran], kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    assert theirs["describe nobody"].code == 1
    assert main(["describe", "--transactional-id", "nobody-at-all", "--bootstrap-server", kafka.bootstrap_servers]) == 1
    assert "not checked: transactional id nobody-at-all: its coordinator, broker 1, does not" in capsys.readouterr().out


def test_describe_of_several_ids_has_a_row_for_each_and_names_those_that_nobody_knows(
    kafka: EmbeddedKafka, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (scene.opened, "nobody-at-all", scene.complete, scene.opened, "--transactional-id", scene.empty)
    assert main(["describe", *given, "-b", kafka.bootstrap_servers, "-o", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    found = [row["transactional_id"] for row in answer["rows"]]
    assert found == [scene.opened, scene.complete, scene.empty]
    assert [one["what"] for one in answer["not_checked"]] == ["transactional id nobody-at-all"]


def test_list_by_age_begins_with_what_has_been_open_for_the_longest_time(
    ours: Callable[..., Rows], scene: Scene
) -> None:
    rows = ours("list", "--transactional-id-pattern", f"{scene.prefix}.*", "--sort", "age")
    names = [row["transactional_id"].removeprefix(f"{scene.prefix}-") for row in rows]
    assert names == ["open", "complete", "empty", "old", "stray"]


def test_describe_producers(theirs: dict[str, Ran], ours: Callable[..., Rows], scene: Scene) -> None:
    topic = scene.here.topic
    same(theirs["describe-producers"], ours("describe-producers", "--topic", topic, "--partition", "0"), PRODUCERS)
    rows = ours("describe-producers", "--topic", topic, "--partition", "1", "--broker-id", "1")
    same(theirs["describe-producers broker"], rows, PRODUCERS)
    assert scene.opened in {row["transactional_id"] for row in rows}


def test_find_hanging(theirs: dict[str, Ran], ours: Callable[..., Rows], scene: Scene) -> None:
    topic = scene.here.topic
    same(theirs["find topic"], ours("find-hanging", "--topic", topic), FOUND)
    same(theirs["find partition"], ours("find-hanging", "--topic", topic, "--partition", "1"), FOUND)
    same(theirs["find old"], ours("find-hanging", "--topic", topic, "--max-transaction-timeout", "15"), FOUND)
    rows = [row for row in ours("find-hanging", "--broker-id", "1") if row["topic"] == topic]
    same(theirs["find broker"], rows, FOUND, lambda row: row["Topic"] == topic)


def test_find_hanging_needs_no_silence_and_no_scope(
    theirs: dict[str, Ran], ours: Callable[..., Rows], scene: Scene
) -> None:
    assert len(theirs["find default"].rows) == 1, "only what is older than 15 minutes"
    assert theirs["find all"].code == 1
    mine = [row for row in ours("find-hanging") if row["topic"] == scene.here.topic]
    assert {row["transactional_id"] for row in mine} == {
        scene.complete,
        f"{scene.prefix}-stray",
        f"{scene.prefix}-old",
    }


def test_the_page_has_what_both_are(theirs: dict[str, Ran], request: pytest.FixtureRequest) -> None:
    page = comparison_page({name: theirs[f"{name} --help"].flags for name in SUBCOMMANDS}, theirs)
    if request.config.getoption("--write-comparison"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "old: run this test with --write-comparison"


def comparison_page(their_flags: dict[str, list[str]], theirs: dict[str, Ran]) -> str:
    """docs/kafka-transactions.md."""
    headings = {
        "list": theirs["list"].headings,
        "describe": theirs["describe open"].headings,
        "describe-producers": theirs["describe-producers"].headings,
        "find-hanging": theirs["find topic"].headings,
    }
    lines = [
        "# txnwatch and kafka-transactions.sh",
        "",
        "<!-- Generated by tests/integration/test_kafka_transactions.py --write-comparison, which runs both. -->",
        "",
        f"Every subcommand and flag of `kafka-transactions.sh` of Kafka {KAFKA_VERSION}, and the flag of txnwatch for",
        "the same purpose. A test ran both tools on the same broker, with an open, a complete and an idle",
        "transactional id and with real hangs, and compared their answers. *The same* is yes if the values were equal.",
    ]
    for name in SUBCOMMANDS:
        mine = _flags_of(OURS.get(name, name))
        lines += ["", f"## {name}", "", DIFFERENCES[name], "", "| kafka-transactions.sh | txnwatch |", "|---|---|"]
        lines += [
            f"| `{flag}` | {f'`{shown}`' if (shown := FLAGS.get(flag, flag)) in mine else _why_not(name, flag)} |"
            for flag in their_flags[name]
        ]
        named = {FLAGS.get(flag, flag) for flag in their_flags[name]}
        lines += [f"| - | `{flag}` |" for flag in mine if flag not in named]
        if name in headings:
            columns = COLUMNS[name]
            lines += ["", "| column of kafka-transactions.sh | field of txnwatch | the same |", "|---|---|---|"]
            lines += [_column(heading, columns) for heading in headings[name]]
    return "\n".join([*lines, ""])


_OTHERWISE = {
    "TransactionDurationMs": "`transaction_duration_ms` | while it is open",
    "Duration(min)": "`duration_ms` | in milliseconds",
}


def _column(heading: str, columns: dict[str, str]) -> str:
    found = f"`{columns[heading]}` | yes" if heading in columns else _OTHERWISE[heading]
    return f"| {heading} | {found} |"


def _why_not(name: str, flag: str) -> str:
    if name == "abort":
        return f"not supported: the value is {NOT_TAKEN[flag]}"
    pytest.fail(f"{name} {flag}: a flag that is not ours has a reason")


def _flags_of(name: str) -> list[str]:
    top = parser([name])
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    shared = {"--help", "--bootstrap-server", "--command-config"}
    shown = [action for action in commands.choices[name]._actions if action.help != argparse.SUPPRESS]
    flags = [action.option_strings[-1] for action in shown if action.option_strings]
    return [flag for flag in flags if flag not in shared]
