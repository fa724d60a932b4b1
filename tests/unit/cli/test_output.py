"""One answer as table and as JSON: the same rows, an incomplete answer is marked, and the exit code follows."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from txnwatch import __version__
from txnwatch.cli.output import CommandAnswer, Duration, LeftOut, NotChecked, Time, heading, write


@dataclass(frozen=True)
class Row:
    transactional_id: str | None
    start_ms: Time | None
    elapsed_ms: Duration
    partitions: tuple[str, ...] = ()
    is_blocker: bool = False


@dataclass(frozen=True)
class Names:
    names: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        yield from self.names


ROW = Row("[red]a[/red] :smile: " + "x" * 300, 1_700_000_000_123, 61_000, ("a-0", "b-1"), is_blocker=True)
MISSING = (NotChecked("orders-0", "NO_LEADER"),)


def written(answer: CommandAnswer, how: str) -> str:
    out = io.StringIO()
    write(answer, how, out)
    return out.getvalue()


def an_answer(*rows: Any, row_type: type = Row, **more: Any) -> CommandAnswer:
    return CommandAnswer("list", "cluster", row_type, rows, **more)


def test_the_table_has_kafkas_headings_and_nothing_is_cut_or_read_as_markup() -> None:
    headings, row = written(an_answer(ROW), "text").splitlines()
    assert headings.split() == ["TransactionalId", "Start", "Elapsed", "Partitions", "IsBlocker"]
    assert row.startswith(str(ROW.transactional_id))
    assert row.endswith(" 2023-11-14 22:13:20.123Z  1m01s    a-0,b-1     true")


def test_a_missing_value_is_a_dash() -> None:
    assert written(an_answer(Row(None, None, -1)), "text").splitlines()[1].split() == ["-", "-", "-", "-", "false"]


def test_json_is_one_envelope_on_one_line() -> None:
    (line,) = written(an_answer(ROW), "json").splitlines()
    assert json.loads(line) == {
        "command": "list",
        "version": __version__,
        "cluster_id": "cluster",
        "complete": True,
        "not_checked": [],
        "left_out": [],
        "rows": [
            {
                "transactional_id": ROW.transactional_id,
                "start_ms": ROW.start_ms,
                "elapsed_ms": ROW.elapsed_ms,
                "partitions": ["a-0", "b-1"],
                "is_blocker": True,
            }
        ],
    }


def test_both_outputs_list_the_unchecked_items() -> None:
    answer = an_answer(not_checked=MISSING)
    found = json.loads(written(answer, "json"))
    assert found["complete"] is False
    assert found["not_checked"] == [{"what": "orders-0", "why": "NO_LEADER"}]
    assert "not checked: orders-0: NO_LEADER" in written(answer, "text")


def test_excluded_rows_are_in_both_outputs_and_the_answer_is_complete() -> None:
    answer = an_answer(left_out=(LeftOut(2, "open spans", "too young"),))
    found = json.loads(written(answer, "json"))
    assert (found["complete"], answer.exit_code(fail_on_found=True)) == (True, 0)
    assert found["left_out"] == [{"count": 2, "what": "open spans", "why": "too young"}]
    assert "left out: 2 open spans: too young" in written(answer, "text").splitlines()


def test_the_text_output_does_not_repeat_a_reason_a_thousand_times() -> None:
    away = tuple(NotChecked(f"orders-{number}", "NO_LEADER") for number in range(1000))
    answer = an_answer(not_checked=(*away, NotChecked("payments-0", "broker 7 is away")))
    shown = [line for line in written(answer, "text").splitlines() if line.startswith("not checked")]
    assert shown == [
        "not checked: orders-0, orders-1, orders-2, orders-3, orders-4 and 995 more: NO_LEADER",
        "not checked: payments-0: broker 7 is away",
    ]
    assert len(json.loads(written(answer, "json"))["not_checked"]) == 1001


def test_a_row_of_prose_is_its_lines_and_still_json() -> None:
    answer = an_answer(Names(("one", "two")), row_type=Names)
    assert written(answer, "text") == "one\ntwo\n"
    assert json.loads(written(answer, "json"))["rows"] == [{"names": ["one", "two"]}]


@pytest.mark.parametrize(
    ("found", "missing", "fail_on_found", "code"),
    [
        (False, (), True, 0),
        (True, (), False, 0),
        (True, (), True, 3),
        (True, MISSING, True, 3),
        (True, MISSING, False, 1),
        (False, MISSING, True, 1),
    ],
)
def test_exit_codes(found: bool, missing: tuple[NotChecked, ...], fail_on_found: bool, code: int) -> None:  # noqa: FBT001
    assert an_answer(found=found, not_checked=missing).exit_code(fail_on_found=fail_on_found) == code


def test_headings() -> None:
    assert heading("transactional_id") == "TransactionalId"
    assert heading("transaction_timeout_ms") == "TransactionTimeoutMs"
