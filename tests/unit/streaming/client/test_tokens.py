"""Tokens: when one is fetched, what is read from it, and what happens if the source fails."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.security import TokenLogin
from txnwatch.streaming.client.tokens import Token, TokenFile, current, token_of


def jwt(**claims: object) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b"signature"))


class Source:
    """Gives tokens of a fixed life; `fails` makes it refuse."""

    user = "me"

    def __init__(self, *, age_s: float, life_s: float) -> None:
        self.fetched = 0
        self.fails = False
        self._age_s, self._life_s = age_s, life_s

    def fetch(self) -> Token:
        if self.fails:
            raise BrokerError("no answer")
        self.fetched += 1
        begin = time.time() - self._age_s
        return Token(f"token-{self.fetched}", "me", begin, begin + self._life_s)


def test_a_token_is_kept_for_most_of_its_life() -> None:
    source = Source(age_s=70.0, life_s=100.0)
    assert current(source) == current(source)
    assert source.fetched == 1


def test_a_token_near_its_end_is_renewed() -> None:
    source = Source(age_s=85.0, life_s=100.0)
    assert [current(source).text, current(source).text] == ["token-1", "token-2"]


def test_a_token_that_cannot_be_renewed_is_used_while_it_is_valid() -> None:
    source = Source(age_s=85.0, life_s=100.0)
    current(source)
    source.fails = True
    assert current(source).text == "token-1"


def test_an_expired_token_is_not_used() -> None:
    source = Source(age_s=101.0, life_s=100.0)
    current(source)
    source.fails = True
    with pytest.raises(BrokerError, match="no answer"):
        current(source)


def test_the_claims_of_a_jwt_count_more_than_the_answer() -> None:
    until = int(time.time()) + 500
    token = token_of(jwt(sub="alice", exp=until), "here", life_s=10.0)
    assert (token.subject, token.expires_s) == ("alice", until)


@pytest.mark.parametrize(("text", "life_s", "expected_s"), [("opaque", 10.0, 10.0), ("a.b.c", None, 60.0)])
def test_a_token_without_claims_lives_as_long_as_the_answer_names(
    text: str, life_s: float | None, expected_s: float
) -> None:
    token = token_of(text, "here", life_s)
    assert token.expires_s == pytest.approx(time.time() + expected_s, abs=2.0)


@pytest.mark.parametrize("text", [None, "", "two words", "a\x01auth=b", 7])
def test_a_text_that_is_no_token_is_an_error_that_does_not_show_it(text: object) -> None:
    with pytest.raises(BrokerError, match=r"^here: expected a token, found something else$"):
        token_of(text, "here", None)


def test_an_expired_token_is_an_error() -> None:
    with pytest.raises(BrokerError, match=r"^here: expected a valid token, found one that expired"):
        token_of(jwt(exp=1), "here", None)


def test_a_token_file_is_read_again_for_each_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    source = TokenFile(str(path))
    with pytest.raises(BrokerError, match=rf"token file {path}: expected a token, found: No such file"):
        source.fetch()
    for subject in ("one", "two"):
        path.write_text(jwt(sub=subject, exp=time.time() + 100) + "\n")
        assert source.fetch().subject == subject


def test_the_exchange_carries_the_token_and_the_extensions(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("opaque")
    exchange = TokenLogin(TokenFile(str(path)), (("logicalCluster", "lkc-1"),)).exchange("broker", "SASL_SSL")
    assert exchange.auth_bytes() == b"n,,\x01auth=Bearer opaque\x01logicalCluster=lkc-1\x01\x01"
    exchange.receive(b"")
    assert exchange.is_done()
