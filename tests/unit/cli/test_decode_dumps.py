"""What `txnwatch decode` says about dumps of kafka-dump-log.sh, as Kafka 4.4.0 has printed them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from txnwatch.cli.main import main, parser
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.wire.printed_batches import BadLine, PrintedBatch, open_in_dump, printed_batches

TEXTS = Path(__file__).parents[2] / "golden" / "texts"
ORDERS = TopicPartition("orders", 0)
SERVER = ("--bootstrap-server", "broker:9092")


def answered(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["decode", "--file", str(path), "--format", "json", *SERVER, *arguments]) == code
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def told(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str, code: int = 0) -> str:
    assert main(["decode", "--file", str(path), *SERVER, *arguments]) == code
    shown = capsys.readouterr()
    return shown.out + shown.err


def commands_in(text: str) -> list[str]:
    found = re.findall(r"txnwatch (?:explain|decode|describe-producers)[^`\n]*?--bootstrap-server broker:9092", text)
    for command in found:
        parser().parse_args(shlex.split(command)[1:])
    return found


@pytest.mark.parametrize("name", ["dump-orders", "dump-orders-deep"])
def test_a_dump_of_data_shows_its_batches_and_what_is_open(capsys: pytest.CaptureFixture[str], name: str) -> None:
    path = TEXTS / f"{name}.txt"
    rows = answered(capsys, path)["rows"]
    assert [(row["base_offset"], row["producer_id"], row["producer_epoch"]) for row in rows[:3]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert rows[2]["kind"] == ("ABORT" if name.endswith("deep") else "control")
    assert rows[2]["coordinator_epoch"] == (0 if name.endswith("deep") else None)
    assert {row["compression"] for row in rows} == {"none"}
    text = told(capsys, path)
    assert "--transaction-log-decoder" not in text
    assert "producer id 1, epoch 22, has a transaction open from offset 27: no marker follows in this dump" in text
    assert "1 transaction is open at the end of this dump" in text
    assert commands_in(text) == [
        "txnwatch explain 1 --bootstrap-server broker:9092",
        "txnwatch explain --topic orders --partition 0 --bootstrap-server broker:9092",
    ]
    assert [row["base_offset"] for row in answered(capsys, path, "--offset", "27")["rows"]] == [27]
    assert answered(capsys, path, "--count", "2")["left_out"][0]["what"] == "rows"


def test_a_dump_of_offsets_names_the_groups_that_wait(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = TEXTS / "dump-offsets.txt"
    assert "0 transactions are open" in told(capsys, path)
    cut = tmp_path / "cut.txt"
    lines = path.read_text().splitlines(keepends=True)
    cut.write_text("".join(lines[:-2]))
    text = told(capsys, cut)
    assert "producer id 3, epoch 0, has a transaction open from offset 2" in text
    assert "The offsets of billing wait in it: txnwatch explain --group billing" in text
    assert "txnwatch explain --topic __consumer_offsets --partition 0 --bootstrap-server broker:9092" in text
    cut.write_text("".join(line for line in lines[:-2] if not line.startswith("|")))
    assert "--offsets-decoder of kafka-dump-log.sh prints the groups" in told(capsys, cut)


@pytest.mark.parametrize("name", ["dump-transaction-state", "dump-transaction-state-raw"])
def test_a_dump_of_the_coordinators_log_without_its_decoder_says_so(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text = told(capsys, TEXTS / f"{name}.txt", code=1)
    assert "a dump of __transaction_state that was made without its decoder: add --transaction-log-decoder" in text
    named = "It has records of storm-1" in text
    assert named is name.endswith("raw")
    assert len(commands_in(text)) == (2 if named else 0)


def test_the_dump_of_a_snapshot_is_a_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    path = TEXTS / "dump-snapshot.txt"
    rows = answered(capsys, path)["rows"]
    assert [(row["producer_id"], row["current_transaction_start_offset"]) for row in rows] == [
        (1, 27),
        (2, 50),
        (0, None),
    ]
    text = told(capsys, path)
    assert "2 of 3 producers have an open transaction" in text
    assert len(commands_in(text)) == 2


OTHERS = {
    "aborted transactions": ("txnindex", "an index of aborted transactions (.txnindex): those have ended"),
    "nothing": ("Dumping /a/orders-0/0.log\nLog starting offset: 0\n", "without a batch"),
    "a batch that is cut": ("baseOffset: 5 lastOffset: 5\n", "without a batch"),
}


@pytest.mark.parametrize(("content", "why"), OTHERS.values(), ids=OTHERS.keys())
def test_what_has_nothing_to_decode_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, why: str
) -> None:
    path = tmp_path / "dump.txt"
    path.write_text((TEXTS / "dump-txnindex.txt").read_text() if content == "txnindex" else content)
    assert why in told(capsys, path, code=1)


def test_a_line_that_is_damaged_is_named_and_the_others_are_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lines = (TEXTS / "dump-orders.txt").read_text().splitlines(keepends=True)
    path = tmp_path / "dump.txt"
    path.write_text("".join([*lines[:3], lines[3].replace("lastOffset: 1", "lastOffset: 1e99"), *lines[4:]]))
    answer = answered(capsys, path, code=1)
    assert len(answer["rows"]) == len(lines) - 3
    assert answer["not_checked"][0]["what"] == f"{path} line 4"


def test_a_marker_ends_only_what_its_producer_had_open_before_it() -> None:
    text = (TEXTS / "dump-orders-deep.txt").read_text()
    batches = [one for one in printed_batches(text) if isinstance(one, PrintedBatch)]
    assert not [one for one in printed_batches(text) if isinstance(one, BadLine)]
    assert [(one.partition, one.producer_id, one.start_offset) for one in open_in_dump(batches[:2])] == [(ORDERS, 0, 0)]
    assert open_in_dump(batches[:3]) == []
    without = [one for one in batches if not one.is_control]
    assert [(one.producer_id, one.start_offset) for one in open_in_dump(without)] == [(0, 0), (1, 5)]


def test_a_segment_of_a_topic_leads_to_its_partition(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(b"")
    text = told(capsys, path)
    assert commands_in(text) == ["txnwatch explain --topic orders --partition 0 --bootstrap-server broker:9092"]
