"""What is said about a Redis or a sentinel that refuses the login, or does not answer."""

from __future__ import annotations

import re

import pytest
import redis

from support.bad_servers import answers, bad_server, hangs_up
from txnwatch.cli.doctor import Health, check_redis
from txnwatch.sinks.delivery.redis_client import check_login, redis_client, said
from txnwatch.sinks.delivery.redis_sink import RedisMirror
from txnwatch.sinks.delivery.redis_views import read_shown
from txnwatch.state.model.errors import ConfigError, SinkError

REFUSALS = {
    "a wrong password": b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    "no password": b"-NOAUTH Authentication required.\r\n",
    "a password where none is set": (
        b"-ERR AUTH <password> called without any password configured for the default user. Are you sure your "
        b"configuration is correct?\r\n"
    ),
}
SENTINELS = "redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster/0"
NO_PRIMARY = r"No master found for 'mymaster': 127\.0\.0\.1:1 \(.*ConnectionError.*\), 127\.0\.0\.1:2 \(.*Error.*\)$"


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS.keys())
@pytest.mark.parametrize("form", ["redis://:SECRET@{}/0", "redis+sentinel://{}/mymaster/0?sentinel_password=SECRET"])
def test_a_login_that_is_refused_is_an_error_of_the_settings(answer: bytes, form: str) -> None:
    with bad_server(answers(answer)) as endpoint:
        with pytest.raises(
            ConfigError, match=r"^redis_url: expected a user and a password that Redis x accepts: "
        ) as found:
            check_login(form.format(endpoint), "Redis x")
        assert "SECRET" not in str(found.value)
        assert "<redis" not in str(found.value)


def test_a_redis_that_does_not_answer_may_come_back() -> None:
    for url in ("redis://127.0.0.1:1/0", SENTINELS, "redis+cluster://127.0.0.1:1"):
        check_login(url, "Redis x")
    with bad_server(hangs_up) as endpoint:
        check_login(f"redis://{endpoint}/0", "Redis x")


def test_the_error_of_sentinels_has_addresses_and_no_objects() -> None:
    with pytest.raises(redis.RedisError) as found:
        redis_client(SENTINELS).ping()
    assert re.fullmatch(NO_PRIMARY, said(found.value))


def test_whoever_reports_sentinels_that_do_not_answer_says_it_in_the_same_way() -> None:
    with pytest.raises(SinkError, match=NO_PRIMARY):
        read_shown(SENTINELS)
    with pytest.raises(SinkError, match=NO_PRIMARY):
        RedisMirror(SENTINELS, "cluster").show_open([])
    row = check_redis(SENTINELS)
    assert row.status is Health.MISSING
    assert re.fullmatch(NO_PRIMARY, row.detail)
