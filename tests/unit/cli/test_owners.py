"""`txnwatch owners`, and the rows of `doctor` about owners."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from txnwatch.cli import doctor_rows
from txnwatch.cli.doctor_rows import Health, beginning, owner_rows
from txnwatch.cli.main import main
from txnwatch.owners.owner_table import OwnerTable, owners_of

ENTRIES = """
[[owner]]
team = "checkout"
contact = "#checkout-oncall"
transactional_ids = ["checkout-*"]
applications = ["ledger-eos"]

[[owner]]
team = "risk"
groups = ["fraud-*"]
topics = ["fraud-scores"]
"""
UUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
TABLE = owners_of({"owner": [{"team": "checkout", "transactional_ids": ["checkout-*", "dwh-eu-*"]}]}, "file")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "owners.toml"
    file.write_text(ENTRIES)
    return file


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, str | None]]:
    assert main(["owners", *arguments, "--format", "json"]) == 0
    rows: list[dict[str, str | None]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_a_name_is_looked_up_as_every_kind(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = answer(capsys, "--owners-file", str(file), "checkout-7", "fraud-scores", "nobody")
    assert [(row["name"], row["kind"], row["owner"], row["pattern"]) for row in rows] == [
        ("checkout-7", "transactional_id", "checkout", "checkout-*"),
        ("fraud-scores", "transactional_id", None, None),
        ("fraud-scores", "topic", "risk", "fraud-scores"),
        ("fraud-scores", "group", "risk", "fraud-*"),
        ("nobody", "transactional_id", None, None),
    ]
    assert rows[0]["note"] == "looks like Spring Kafka: prefix checkout-, number 7; this is a guess"
    assert rows[0]["contact"] == "#checkout-oncall"


def test_the_last_line_counts_the_names_with_an_owner(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["owners", "--owners-file", str(file), "checkout-7", "fraud-scores", "nobody"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 3 names have an owner"
    assert main(["owners", "checkout-7"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "the table of owners is empty: set owners_file"


def test_a_guessed_application_is_said_not_to_count(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = answer(capsys, "--owners-file", str(file), f"ledger-eos-{UUID}-1")
    assert [(row["kind"], row["owner"], row["note"]) for row in rows][1] == (
        "application",
        "checkout",
        "application ledger-eos: it is a guess, so it does not count",
    )


def test_without_a_table_the_form_is_shown_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    rows = answer(capsys, "orders-4-1187")
    assert [row["owner"] for row in rows] == [None]
    assert "looks like Flink" in str(rows[0]["note"])


def test_a_hostile_name_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["owners", "evil\x1b]0;x\x07-1-2"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_table_that_is_invalid_is_a_usage_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[[owner]]\nteam = 1\n")
    assert main(["owners", "a", "--owners-file", str(file)]) == 2
    assert "team: expected a valid string, found '1'" in capsys.readouterr().err


IDS = [
    *(f"checkout-{number}" for number in range(30)),
    *(f"dwh-eu-{number}-7" for number in range(5)),
    *(f"dwh-{number}-7" for number in range(4)),
    *(f"producer_{number}_for_clicks" for number in range(3)),
    "refunds",
]


def rows_of(ids: list[str], table: OwnerTable = TABLE) -> dict[str, tuple[str, str]]:
    return {row.subject: (row.status, row.detail) for row in owner_rows(ids, table)}


def test_doctor_counts_what_has_no_owner_and_lists_the_most_frequent_beginnings() -> None:
    assert rows_of(IDS) == {
        "transactional ids": (
            Health.WARNING,
            "8 of 43 ids have no owner by their name; most often dwh*, application clicks, refunds",
        ),
        "checkout-*": (Health.OK, "30 ids: owner checkout"),
        "dwh-eu*": (Health.OK, "5 ids: owner checkout"),
        "dwh*": (Health.OK, "4 ids: no owner"),
        "application clicks": (Health.OK, "3 ids: no owner"),
        "refunds": (Health.OK, "1 id: no owner"),
    }


def test_a_beginning_can_have_an_owner_in_part() -> None:
    table = owners_of({"owner": [{"team": "one", "transactional_ids": ["job-1-1", "job-1-2"]}]}, "file")
    ids = ["job-1-1", "job-1-2", "job-1-3"]
    assert rows_of(ids, table)["job*"][1] == "3 ids: owner one, 1 of them without an owner"


def test_at_most_ten_beginnings_are_listed() -> None:
    ids = [f"{name}-{number}" for name in "abcdefghijklm" for number in range(2)]
    assert len(rows_of(ids)) == 1 + doctor_rows.MOST_BEGINNINGS


def test_without_a_table_doctor_does_not_warn() -> None:
    rows = rows_of(IDS, OwnerTable())
    assert {status for status, _ in rows.values()} == {Health.OK}
    assert "there is no table of owners (owners_file)" in rows["transactional ids"][1]


def test_a_table_that_is_complete_is_no_warning() -> None:
    assert rows_of(["checkout-1"])["transactional ids"] == (Health.OK, "each of 1 ids has an owner")


def test_without_ids_there_is_no_row() -> None:
    assert rows_of([]) == {}


def test_of_very_many_ids_the_first_ones_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_rows, "IDS_LOOKED_UP", 30)
    assert rows_of(IDS)["transactional ids"][1] == "each of 43 ids (the first 30 were looked up) has an owner"


def test_a_beginning_is_a_pattern_of_the_table() -> None:
    assert [beginning(one) for one in ("checkout-7", f"ledger-{UUID}-1", "jet.job-1.orders.sink.2-1", "plain")] == [
        "checkout-*",
        "ledger*",
        "application orders.sink",
        "plain",
    ]
