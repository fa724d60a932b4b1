"""What `doctor` says about the HTTP port of `run`: whether everybody who reaches it can read the page."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from txnwatch.cli.doctor_rows import CheckRow, http_rows

USERS = "basic_auth_users:\n  alice: $2b$04$5rpXHSJ4jEzZtzEE5qJ2HOuSKrlM/4z3zIw0k3GqZ8pQnZ2z1vY5i\n"


def rows_of(host: str, web: Path | None = None, port: int | None = 9464) -> list[CheckRow]:
    return list(http_rows(Namespace(http_port=port, http_host=host, http_web_config_file=web)))


def test_there_is_no_row_without_a_port() -> None:
    assert rows_of("0.0.0.0", port=None) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_an_address_of_this_machine_is_no_warning(host: str) -> None:
    assert [row.status for row in rows_of(host)] == ["ok"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "txnwatch.example"])
def test_another_address_without_users_is_a_warning_that_says_what_to_set(host: str) -> None:
    (row,) = rows_of(host)
    assert (row.status, row.subject) == ("warning", f"{host}:9464")
    assert "no users" in row.detail
    assert row.fix is not None
    assert "--http-web-config-file" in row.fix


def test_with_users_it_is_no_warning(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text(USERS)
    assert [row.status for row in rows_of("0.0.0.0", web)] == ["ok"]


def test_a_file_without_users_protects_nothing(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text("http_server_config:\n  headers: {}\n")
    assert [row.status for row in rows_of("0.0.0.0", web)] == ["warning"]


def test_a_file_that_is_not_valid_is_missing(tmp_path: Path) -> None:
    (row,) = rows_of("0.0.0.0", tmp_path / "absent.yaml")
    assert row.status == "missing"
