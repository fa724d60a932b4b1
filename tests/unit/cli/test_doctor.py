"""What doctor shows of the machine it runs on."""

from __future__ import annotations

from dataclasses import astuple

from txnwatch.cli.check_row import Health
from txnwatch.cli.doctor import check_redis


def test_the_password_of_a_redis_url_is_not_shown() -> None:
    row = check_redis("redis://watch:secret@127.0.0.1:1/0")
    assert row.status is Health.MISSING
    assert row.subject == "redis://***@127.0.0.1:1/0"
    assert "secret" not in str(astuple(row))


def test_the_password_in_the_query_of_a_redis_url_is_not_shown() -> None:
    row = check_redis("redis://127.0.0.1:1/0?password=kanarienvogel")
    assert row.subject == "redis://127.0.0.1:1/0?***"
    assert "kanarienvogel" not in str(astuple(row))
