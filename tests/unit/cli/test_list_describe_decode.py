"""The small decisions of list, describe and decode."""

from __future__ import annotations

import argparse
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from support.batches import a_batch, a_record
from support.transaction_log import a_key, a_value
from txnwatch.cli.describe import row_of
from txnwatch.cli.list import ORDERS, ListedRow, filters_of
from txnwatch.cli.main import main
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.streaming.log.coordinator_log import LogRecord
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.printed import bytes_of

COMPLETE = "00010000000000000009 0001 0000ea60 04 01 000001a1f86c3ef0 000001a1f86c3ee6 02 00080000000000000009 02020002"
KEY = "0000 0002 7476"
VALUE = TransactionLogValue(0, 9, 3, 60_000, S.EMPTY, None, 1, None)


@pytest.mark.parametrize(
    "text", ["0102ff", "0x0102FF", "01 02 ff", r"\x01\x02\xff", base64.b64encode(b"\x01\x02\xff").decode()]
)
def test_bytes_are_read_as_they_are_printed(text: str) -> None:
    assert bytes_of(text) == b"\x01\x02\xff"


def test_bytes_that_are_none_are_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--value", "no bytes!"]) == 2
    assert "--value: expected hexadecimal or base64, found 'no bytes!'" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["app::NULL", '{"key":{"data":{"transactionalId":"app"}},"value":null}'])
def test_the_output_of_a_tool_is_no_value(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--value", text]) == 2
    assert "give it on standard input of txnwatch decode --file -" in capsys.readouterr().err


def test_a_record_is_decoded_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--key", KEY, "--value", COMPLETE, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["transactional_id"], row["transaction_state"], row["producer_id"]) == ("tv", "CompleteCommit", 9)
    assert (row["offset"], row["client_transaction_version"], row["topic_partitions"]) == (None, 2, [])


@pytest.mark.parametrize(
    "arguments",
    [[], ["--value", "00", "--file", "x"], ["--topic", "orders"], ["--value", "00", "--transactional-id", "x"]],
)
def test_decode_wants_one_thing(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", *arguments]) == 2
    assert "expected one of" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--file", str(tmp_path / "x.log")]) == 2
    assert "No such file" in capsys.readouterr().err


SEGMENT = a_batch(0, producer_id=-1, transactional=False, records=[a_record(key=a_key("tv"), value=a_value(VALUE))])
CUT = SEGMENT + a_batch(7)[:-1]


def decoded(path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["decode", "--file", str(path), "--format", "json", *arguments])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("folder", ["orders-0", "__transaction_state-4"])
def test_a_segment_that_is_cut_inside_a_batch_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    path = tmp_path / folder / "0.log"
    path.parent.mkdir()
    path.write_bytes(CUT)
    code, answer = decoded(path, capsys)
    assert (code, answer["complete"], len(answer["rows"])) == (1, False, 1)
    ((what, why),) = [(one["what"], one["why"]) for one in answer["not_checked"]]
    assert what == f"{path} from byte {len(SEGMENT)}"
    size = len(a_batch(7))
    assert why.startswith(f"the batch at offset 7 is cut: {size - 1} of {size} bytes are there. The last batch of a ")

    assert decoded(path, capsys, "--count", "1")[0] == 0, "what was asked for is there"
    path.write_bytes(CUT[: len(SEGMENT) + 5])
    assert "a batch is cut: 5 bytes are there" in decoded(path, capsys)[1]["not_checked"][0]["why"]
    path.write_bytes(SEGMENT)
    assert decoded(path, capsys)[0] == 0


def flags(**given: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"state": [], "duration_filter": None, "transactional_id_pattern": None, "producer_id": [], **given}
    )


def test_a_duration_filter_is_about_what_is_open() -> None:
    assert filters_of(flags(duration_filter=5)).states == ("Ongoing", "PrepareCommit", "PrepareAbort")
    assert filters_of(flags(duration_filter=5, state=["Empty", "Ongoing"])).states == ("Ongoing",)
    assert filters_of(flags(duration_filter=-1)).states == ()
    with pytest.raises(ConfigError, match=r"expected an open --state .*found Empty"):
        filters_of(flags(duration_filter=5, state=["Empty"]))


def test_a_pattern_must_be_one() -> None:
    with pytest.raises(ConfigError, match="--transactional-id-pattern: expected a regular expression"):
        filters_of(flags(transactional_id_pattern="("))


def listed(name: str, open_for_ms: int | None, coordinator: int = 1) -> ListedRow:
    return ListedRow(name, coordinator, 7, "Ongoing", 60_000, open_for_ms)


def test_the_age_orders_what_is_open_and_then_the_ids() -> None:
    rows = [listed("c", None), listed("b", 5), listed("e", 0), listed("a", None), listed("d", 9), listed("f", 5)]
    assert [row.transactional_id for row in sorted(rows, key=ORDERS["age"])] == ["d", "b", "f", "e", "a", "c"]
    assert [row.transactional_id for row in sorted(rows, key=ORDERS["id"])] == ["a", "b", "c", "d", "e", "f"]


def test_describe_wants_an_id(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert "describe: expected at least one transactional id, found none" in capsys.readouterr().err


def described(state: S, start_ms: int | None = 1_000) -> DescribedTransaction:
    return DescribedTransaction("x", 1, state, 7, 0, 60_000, start_ms)


def logged(state: S, at_ms: int) -> LogRecord:
    return LogRecord(0, 3, at_ms, "x", TransactionLogValue(1, 7, 0, 60_000, state, None, 1_100, 1_000))


DURATIONS = {
    "open": (described(S.ONGOING), logged(S.ONGOING, 1_100), 9_000, 1_100),
    "complete": (described(S.COMPLETE_COMMIT), logged(S.COMPLETE_COMMIT, 1_500), 500, 1_500),
    "idle": (described(S.EMPTY, None), logged(S.EMPTY, 1_100), None, 1_100),
    "complete, its record unread": (described(S.COMPLETE_COMMIT), None, None, None),
    "it moved on meanwhile": (described(S.COMPLETE_COMMIT), logged(S.ONGOING, 1_500), None, None),
}


@pytest.mark.parametrize(("found", "last", "duration_ms", "updated_ms"), DURATIONS.values(), ids=DURATIONS.keys())
def test_a_duration_is_that_of_what_is_open_or_ended_last(
    found: DescribedTransaction, last: LogRecord | None, duration_ms: int | None, updated_ms: int | None
) -> None:
    row = row_of(found, last, 10_000)
    assert (row.transaction_duration_ms, row.last_update_time_ms) == (duration_ms, updated_ms)
