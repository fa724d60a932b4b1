"""Tables fit the terminal, and lose nothing where there is none."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from txnwatch.cli.find_hanging import FoundRow
from txnwatch.cli.output import CommandAnswer, write
from txnwatch.cli.table_layout import Column, table_lines
from txnwatch.state.telling.statements import StatementKind, Told

COLUMNS = [Column("Verdict", False), Column("Topic", False), Column("Epoch", True), Column("Reason", True)]
ROWS = [["hanging", "payments", "3", "already_completed"], ["late", "orders", "-", "-"]]


def test_without_a_limit_each_row_is_one_line() -> None:
    headings, first, second = table_lines(COLUMNS, ROWS, None)
    assert headings.split() == ["Verdict", "Topic", "Epoch", "Reason"]
    assert first.split() == ROWS[0]
    assert second.split() == ROWS[1]


def test_rows_that_fit_are_a_table() -> None:
    assert list(table_lines(COLUMNS, ROWS, 50)) == list(table_lines(COLUMNS, ROWS, None))


def test_details_stand_below_the_row_if_the_table_is_too_wide() -> None:
    assert list(table_lines(COLUMNS, ROWS, 30)) == [
        "Verdict  Topic",
        "hanging  payments",
        "    Epoch 3",
        "    Reason already_completed",
        "late     orders",
    ]


def test_a_row_is_a_block_if_its_main_columns_are_too_wide() -> None:
    rows = [["hanging", "a" * 70, "3", "already_completed"], ROWS[1]]
    assert list(table_lines(COLUMNS, rows, 60)) == [
        "Verdict  hanging",
        f"Topic    {'a' * 51}",
        f"         {'a' * 19}",
        "Epoch    3",
        "Reason   already_completed",
        "",
        "Verdict  late",
        "Topic    orders",
        "Epoch    -",
        "Reason   -",
    ]


def test_the_last_main_columns_are_below_the_row_if_all_are_too_wide() -> None:
    columns = [Column(title, False) for title in ("Check", "Subject", "Status", "Detail")]
    rows = [["right", "Read on topic orders", "missing", "this user is not allowed to read the topic"]]
    assert list(table_lines(columns, rows, 40)) == [
        "Check  Subject               Status",
        "right  Read on topic orders  missing",
        "    Detail this user is not allowed to",
        "    read the topic",
    ]
    assert list(table_lines(columns, rows, 30)) == [
        "Check  Subject",
        "right  Read on topic orders",
        "    Status missing",
        "    Detail this user is not",
        "    allowed to read the topic",
    ]


def test_a_long_value_is_broken_between_words() -> None:
    columns = [Column("Subject", False), Column("Detail", False)]
    rows = [["orders", f"not allowed to read {'a' * 40} there"]]
    assert list(table_lines(columns, rows, 30)) == [
        "Subject  orders",
        "Detail   not allowed to read",
        f"         {'a' * 21}",
        f"         {'a' * 19}",
        "         there",
    ]


CELLS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=200)


@example([("証" * 50, "拠" * 90, "a" * 200, "二" * 3)], 41)
@given(st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), max_size=5), st.integers(40, 200))
def test_every_line_fits_and_every_value_is_there(rows: list[tuple[str, ...]], width: int) -> None:
    lines = list(table_lines(COLUMNS, rows, width))
    assert max(map(cell_len, lines)) <= width
    text = "".join("".join(line.split()) for line in lines)
    assert all(value in text for row in rows for value in row if value != "-")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ABORT = "txnwatch abort --topic payments.transactions.v1 --partition 11 --producer-id 4000 --start-offset 1234567"
FOUND = FoundRow(
    verdict="hanging",
    transactional_id="checkout-7",
    topic="payments.transactions.v1",
    partition=11,
    partitions=("payments.transactions.v1-11",),
    producer_id=4_000,
    producer_epoch=3,
    coordinator_epoch=5,
    start_offset=1_234_567,
    last_timestamp_ms=1_700_000_000_000,
    duration_ms=61_000,
    affected_groups=("billing", "audit", "search", "mail"),
    waiting_groups=(),
    reason="already_completed",
    transaction_state="CompleteAbort",
    transaction_timeout_ms=60_000,
    overdue_ms=None,
    hidden_records=1_500,
    expected_outcome="abort",
    outcome_doubt=None,
    published_outcome=None,
    published_by=None,
    owner="checkout",
    contact="#checkout-oncall",
    application="looks like Spring Kafka: prefix checkout-, number 7; this is a guess",
    next=ABORT,
    told=(Told(StatementKind.SAFE, "Resume the Flink job."), Told(StatementKind.NEXT, "Write it.", ABORT)),
)
NEEDED = ["hanging", "checkout-7", "payments.transactions.v1-11", "4000", "3", "1m01s", "billing", "checkout"]
ONLY_WIDE = ["already_completed", "CompleteAbort", "2023-11-14", "1500", "Spring"]


def test_a_name_of_4000_characters_does_not_widen_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    long = replace(FOUND, transactional_id="a" * 4_000, affected_groups=("b" * 4_000,))
    monkeypatch.setenv("COLUMNS", "240")
    for out, most in ((Terminal(), 240), (io.StringIO(), 300)):
        write(CommandAnswer("find-hanging", "cluster", FoundRow, [long, FOUND]), "text", out)
        heading, _, usual, *_ = out.getvalue().splitlines()
        assert heading.startswith("Verdict")
        assert usual.startswith("hanging  checkout-7 ")
        assert max(len(heading), len(usual)) <= most
    assert "\u2026" in out.getvalue()


def shown(out: io.StringIO, *, is_wide: bool = False) -> str:
    write(CommandAnswer("find-hanging", "cluster", FoundRow, [FOUND]), "text", out, is_wide=is_wide)
    return out.getvalue()


@pytest.mark.parametrize("width", [80, 120, 200])
def test_find_hanging_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    *lines, following = shown(Terminal()).splitlines()
    assert lines[-3:] == ["payments.transactions.v1-11:", "Resume the Flink job.", "Write it."]
    assert following == f"next: {ABORT}"
    assert max(map(len, lines)) <= width
    assert [value for value in NEEDED if value not in "\n".join(lines)] == []


@pytest.mark.parametrize("out", [io.StringIO, Terminal])
def test_what_nobody_needs_at_night_is_only_shown_with_wide(
    out: Callable[[], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe too: its text is read by people, and programs read JSON."""
    monkeypatch.setenv("COLUMNS", "200")
    narrow, wide = shown(out()), shown(out(), is_wide=True)
    assert [value for value in ONLY_WIDE if value in narrow] == []
    assert [value for value in (*NEEDED, *ONLY_WIDE) if value not in wide] == []
    assert [len(text.splitlines()) for text in (narrow, wide)] == [6, 6], "one line for each row"
    assert len(narrow.splitlines()[0].split()) <= 10


def test_three_names_are_in_a_cell_and_the_others_are_counted() -> None:
    assert "billing, audit, search and 1 more" in shown(io.StringIO())
