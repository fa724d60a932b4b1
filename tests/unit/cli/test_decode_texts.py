"""What `txnwatch decode` says about tables of Kafka's tools, log lines and statistics: each leads to a command."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from support.transaction_log import a_value
from txnwatch.cli.decode_texts import recognise
from txnwatch.cli.main import main, parser
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.printed_batches import printed_batches, printed_producers

TEXTS = Path(__file__).parents[2] / "golden" / "texts"
ORIGIN = Origin("", "broker:9092")
ALL_TEXTS = sorted(
    path.name for pattern in ("transactions-*", "groups-*", "*.log", "*.json") for path in TEXTS.glob(pattern)
)


def told(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str, code: int = 0) -> str:
    assert main(["decode", "--file", str(path), "--bootstrap-server", "broker:9092", *arguments]) == code
    shown = capsys.readouterr()
    return shown.out + shown.err


def rows_of(text: str) -> list[Any]:
    known = recognise(text, ORIGIN)
    assert known is not None
    return known.rows


@pytest.mark.parametrize("name", ALL_TEXTS)
def test_each_text_leads_to_commands_that_this_program_has(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = told(capsys, TEXTS / name)
    steps = [line.removeprefix("next: ") for line in text.splitlines() if line.startswith("next: ")]
    assert steps
    for step in steps:
        assert parser().parse_args(shlex.split(step)[1:]).bootstrap_server == "broker:9092"
    rows = json.loads(told(capsys, TEXTS / name, "--format", "json"))["rows"]
    assert [row["next"] for row in rows] == steps


TABLES = {
    "transactions-list": ("Ongoing", "storm-2", None, None, None),
    "transactions-describe": ("Ongoing", "checkout-0", 3, None, None),
    "transactions-describe-producers": ("open", None, 3, None, None),
    "transactions-find-hanging": ("open", None, 4, "payments-v2-0", None),
    "groups-describe": ("open", None, None, "payments-v2-0", "billing"),
    "groups-members": (None, None, None, None, "billing"),
    "groups-state": (None, None, None, None, "billing"),
    "groups-list": (None, None, None, None, "billing"),
}


@pytest.mark.parametrize(("name", "first"), TABLES.items())
def test_what_is_open_comes_first(name: str, first: tuple[Any, ...]) -> None:
    row = rows_of((TEXTS / f"{name}.txt").read_text())[0]
    found = (row.transaction_state, row.transactional_id, row.producer_id, row.topic_partition, row.group_id)
    assert found[0] == first[0]
    assert found[1] == first[1]
    assert found[2] == first[2] or name == "transactions-list"
    assert found[3:] == first[3:]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_was_pasted_with_blanks_is_the_same(name: str) -> None:
    text = (TEXTS / f"{name}.txt").read_text()
    assert rows_of(text.replace("\t", "   ")) == rows_of(text)


def test_an_empty_table_of_find_hanging_proves_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text((TEXTS / "transactions-find-hanging.txt").read_text().splitlines()[0])
    text = told(capsys, path)
    assert "the table is empty. find-hanging of kafka-transactions.sh shows nothing before" in text
    assert "txnwatch find-hanging --bootstrap-server broker:9092" in text


LOG = {
    "Initialized transactionalId late-app with": ("late-app", 0, None),
    "Completed rollback of ongoing": ("late-app", None, None),
    "Out of order sequence number": (None, 2, "orders-0"),
    "likely deleted already": ("deleted", None, "gone-0"),
}


@pytest.mark.parametrize(("part", "about"), LOG.items())
def test_a_line_of_a_coordinator_names_the_id_the_producer_and_the_partition(
    part: str, about: tuple[str | None, int | None, str | None]
) -> None:
    (line,) = [one for one in (TEXTS / "coordinator.log").read_text().splitlines() if part in one]
    (row,) = rows_of(line)
    assert (row.transactional_id, row.producer_id, row.topic_partition) == about


LINES = {
    "[Transaction Marker Request Completion Handler 1]: Sending app-1's transaction marker for partition orders-3 has "
    "permanently failed with error org.apache.kafka.common.errors.InvalidProducerEpochException with the current "
    "coordinator epoch 4; cancel sending any more transaction markers TxnMarkerEntry{producerId=7, producerEpoch=2} "
    "to the brokers": ("app-1", 7, "orders-3", "refused the marker for good"),
    "org.apache.kafka.common.errors.InvalidProducerEpochException: Epoch of producer 3 at offset 12 in orders-0 is 1, "
    "which is smaller than the last seen epoch 2": (None, 3, "orders-0", "old producer epoch was refused"),
    "[Producer clientId=app, transactionalId=checkout-0] Transiting to fatal error state due to "
    "org.apache.kafka.common.errors.ProducerFencedException: There is a newer producer with the same "
    "transactionalId which fences the current one.": ("checkout-0", None, None, "PRODUCER_FENCED: another client"),
    "Timeout expired after 60000ms while awaiting InitProducerId": (None, None, None, "initTransactions: a request"),
    "Caused by: org.apache.kafka.common.errors.ConcurrentTransactionsException": (None, None, None, "CONCURRENT_"),
}


@pytest.mark.parametrize(("line", "about"), LINES.items())
def test_a_line_of_a_log_says_what_it_means(line: str, about: tuple[str | None, int | None, str | None, str]) -> None:
    (row,) = rows_of(line)
    assert (row.transactional_id, row.producer_id, row.topic_partition) == about[:3]
    assert about[3] in row.what
    assert row.next is not None


def test_lines_that_say_the_same_are_one_row_with_the_last_epoch() -> None:
    row = next(one for one in rows_of((TEXTS / "coordinator.log").read_text()) if one.transactional_id == "two-clients")
    assert (row.line, row.times, row.producer_epoch) == (4, 2, 2)


@pytest.mark.parametrize(
    "text", ["hello world\n", "", "the job is restoring its state\n", '{"a": 1}', "TOPIC PARTITION\n"]
)
def test_any_other_text_is_not_known(text: str) -> None:
    assert recognise(text, ORIGIN) is None


def a_client(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TEXTS / "librdkafka-producer.json").read_text())
    return {**found, **fields}


def test_statistics_of_a_producer_tell_its_transaction() -> None:
    (row,) = rows_of(json.dumps(a_client()))
    assert (row.producer_id, row.producer_epoch, row.transaction_state) == (0, 0, "InTransaction")
    assert "a transaction is open in this client" in row.what
    fatal = {"txn_state": "FatalError", "idemp_state": "FatalError", "producer_id": -1, "producer_epoch": -1}
    (row,) = rows_of("STATS: " + json.dumps(a_client(eos=fatal)))
    assert (row.producer_id, "its client must be closed" in row.what) == (None, True)


def test_statistics_of_a_consumer_tell_where_it_stops() -> None:
    partitions = {"0": {"ls_offset": 5, "hi_offset": 9}, "1": {"ls_offset": 9, "hi_offset": 9}, "-1": {"hi_offset": 3}}
    client = a_client(type="consumer", eos=None, topics={"orders": {"partitions": partitions}})
    lines = "\n".join(json.dumps(client) for _ in range(2))
    rows = rows_of(lines)
    assert [(row.line, row.topic_partition) for row in rows][:1] == [(1, "orders-0")]
    assert "read_committed stops at 5 of 9" in rows[0].what


@pytest.mark.parametrize("path", sorted(TEXTS.iterdir()), ids=lambda path: path.name)
def test_a_text_that_is_cut_anywhere_breaks_nothing(path: Path) -> None:
    text = path.read_text(errors="replace")
    for end in range(0, len(text), 23):
        recognise(text[:end], ORIGIN)
        recognise(text[end:], ORIGIN)
        list(printed_batches(text[:end]))
        list(printed_producers(text[end:]))


HOSTILE = (
    '{"type": "producer", "topics": {"a": []}, "eos": {"producer_id": true}}',
    '{"type": "producer", "topics": {"a": {"partitions": {"x": 1, "0": {"ls_offset": "1", "hi_offset": []}}}}}',
    '{"type": "consumer", "topics": ' + "[" * 100_000,
    "ProducerId LatestCoordinatorEpoch CurrentTransactionStartOffset\n99999999999999999999999 x",
    "transactionalId=\x1b[2J producerId=99999999999999999999 partition ../../etc-1",
    "Topic Partition ProducerId StartOffset Duration(min)\na/b 0 1 2 3",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_of_another_program_breaks_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    recognise(text, ORIGIN)
    path = tmp_path / "t.txt"
    path.write_text(text)
    main(["decode", "--file", str(path)])
    shown = capsys.readouterr()
    assert all(line.isprintable() for line in (shown.out + shown.err).splitlines())


def test_a_text_that_is_given_as_a_value_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--value", (TEXTS / "transactions-list.txt").read_text()]) == 2
    why = capsys.readouterr().err
    assert "--value: expected bytes, found a table of kafka-transactions.sh list: give it on standard input" in why


def test_values_that_the_console_consumer_has_printed_need_its_formatter(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "values"
    value = TransactionLogValue(1, 9, 3, 60_000, TransactionState.ONGOING, (("orders", (0,)),), 1, 1)
    path.write_bytes(a_value(value) + b"\n" + a_value(value) + b"\n")
    assert "add --formatter org.apache.kafka.tools.consumer.TransactionLogMessageFormatter" in told(
        capsys, path, code=1
    )
