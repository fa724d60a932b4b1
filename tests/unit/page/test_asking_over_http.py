"""A watcher is asked over HTTP: with its login, and whatever it answers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clusters_world import facts_of_world
from support.http_receiver import Receiver, Says, receiving
from support.page_world import a_busy_cluster
from txnwatch.http_client import HttpClient, parse_address
from txnwatch.page import asking
from txnwatch.page.asking import WatcherLogin, WatcherPlace
from txnwatch.page.live_picture import encode
from txnwatch.state.model.errors import BadFactsError, ConfigError, SinkError, TxnwatchError

FACTS = encode(facts_of_world(a_busy_cluster(), "EU", "watch-0:/c"))


@pytest.fixture
def watcher() -> Iterator[Receiver]:
    with receiving() as receiver:
        receiver.usually = lambda _: Says(200, {}, FACTS)
        yield receiver


def place(watcher: Receiver, login: WatcherLogin | None = None) -> WatcherPlace:
    return WatcherPlace(watcher.url, HttpClient(parse_address(f"{watcher.url}/api/v1/facts")), login)


def test_the_page_of_a_watcher_tells_its_facts() -> None:
    with a_busy_cluster().served() as url:
        found = WatcherPlace(url, HttpClient(parse_address(f"{url}/api/v1/facts"))).ask()
    assert (found.cluster_id, found.instance) == ("Qk7rXf2mTtS9", "watch-0:/var/lib/txnwatch")
    assert len(found.incidents or ()) == 4
    assert found.ends, "the ends that the query has read"


def test_the_password_is_read_for_each_request_and_never_shown(watcher: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secr\u00e9t:1\n")
    login = WatcherLogin("page", file)
    place(watcher, login).ask()
    file.write_text("secret-2")
    place(watcher, login).ask()
    given = [base64.b64decode(one.headers["authorization"].partition(" ")[2]).decode() for one in watcher.received]
    assert given == ["page:secr\u00e9t:1", "page:secret-2"]
    file.unlink()
    with pytest.raises(SinkError, match=r"password_file .* cannot be read: FileNotFoundError"):
        place(watcher, login).ask()
    with pytest.raises(ConfigError, match="password_file"):
        login.check()
    assert "secret" not in repr(login)


ANSWERS = {
    "no login": (Says(401), "it asks for a login: give user and password_file"),
    "no right": (Says(403), "it refuses the request"),
    "no facts": (Says(404), "another version, or no watcher"),
    "another name": (Says(421), "`http_names` of the watcher names it"),
    "not connected": (Says(503), "it is not connected to its cluster yet"),
    "a redirect": (Says(302, {"Location": "https://secret.example/"}), "it answers with the status 302"),
    "a page": (Says(200, {}, b"<html>"), "expected the facts of a watcher"),
    "too much": (Says(200, {}, b" " * 2_000), "at most 1000 bytes, found more"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_each_other_answer_has_words(watcher: Receiver, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, expected = ANSWERS[name]
    monkeypatch.setattr(asking, "MOST_BYTES", 1_000)
    watcher.answers = [answer]
    with pytest.raises(TxnwatchError, match=expected) as found:
        place(watcher).ask()
    assert "secret" not in str(found.value)
    assert isinstance(found.value, BadFactsError if name == "a page" else SinkError)
    assert len(watcher.received) == 1


def test_a_login_that_is_refused(watcher: Receiver, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    watcher.answers = [Says(401)]
    with pytest.raises(SinkError, match="it refuses the login"):
        place(watcher, WatcherLogin("page", tmp_path / "password")).ask()
