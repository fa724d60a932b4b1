"""Little slow work waits, whatever clients ask for, and the others are answered meanwhile."""

from __future__ import annotations

import asyncio
import base64
import http.client
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from prometheus_client import CollectorRegistry, Gauge

from txnwatch.web.server import WebServer
from txnwatch.web.slow_work import MOST_WAITING, SlowWork
from txnwatch.web.web_config import read_web_config

FLOOD = 40
USER = ("watch", "kanarienvogel")
OTHER = ("other", "rotkehlchen")
ATTACKER, PROBE = "127.0.0.1", "127.0.0.2"


def results(*addresses: str) -> list[bool | None]:
    """The result of a check of each address, which arrive in this order while the first one runs."""

    async def all_of_them(thread: ThreadPoolExecutor) -> list[bool | None]:
        checks, begun = SlowWork[bool](thread), threading.Event()
        first = asyncio.create_task(checks.result(addresses[0], lambda: begun.wait(5.0)))
        await asyncio.sleep(0)
        others = []
        for address in addresses[1:]:
            others.append(asyncio.create_task(checks.result(address, lambda: True)))
            await asyncio.sleep(0)
        begun.set()
        return list(await asyncio.gather(first, *others))

    with ThreadPoolExecutor(1) as thread:
        return asyncio.run(all_of_them(thread))


def test_as_many_as_may_wait_have_their_turn() -> None:
    assert results(*["a"] * (1 + MOST_WAITING)) == [True] * (1 + MOST_WAITING)


def test_what_has_waited_longest_gives_its_place_up() -> None:
    assert results(*["a"] * (3 + MOST_WAITING)) == [True, None, None, *[True] * MOST_WAITING]


@pytest.mark.parametrize("place", [1, 5, FLOOD])
def test_one_check_of_another_address_has_its_turn_before_in_and_behind_a_flood(place: int) -> None:
    addresses = ["a"] * FLOOD
    addresses.insert(place, "b")
    assert results(*addresses)[place] is True


def test_many_addresses_do_not_make_more_wait() -> None:
    assert results(*map(str, range(FLOOD))).count(True) == 1 + MOST_WAITING


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    hashes = (f"  {user}: {bcrypt.hashpw(word.encode(), bcrypt.gensalt(4)).decode()}\n" for user, word in (USER, OTHER))
    (tmp_path / "web.yml").write_text("basic_auth_users:\n" + "".join(hashes))
    web = read_web_config(tmp_path / "web.yml")
    with closing(WebServer(CollectorRegistry(), "127.0.0.1", 0, lambda: True, web)) as found:
        yield found


def get(
    server: WebServer, given: tuple[str, str] | None, client: str = PROBE, path: str = "/-/healthy"
) -> tuple[int, str | None]:
    """The status of the answer to an address, and when to try again."""
    port = int(server.url.rpartition(":")[2])
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=8.0, source_address=(client, 0))) as connection:
        connection.request("GET", path, headers={"Authorization": basic(*given)} if given else {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Retry-After")


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_a_flood_of_wrong_passwords_is_bounded_and_the_others_are_answered(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get(server, USER) == (200, None)
    begun, checked, check = threading.Event(), Counter[bytes](), bcrypt.checkpw

    def slow(password: bytes, hashed: bytes) -> bool:
        checked[password] += 1
        begun.wait(10.0)
        return check(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", slow)
    with ThreadPoolExecutor(FLOOD + 1) as clients:
        wrong = [clients.submit(get, server, ("watch", str(number)), ATTACKER) for number in range(FLOOD)]
        until = time.monotonic() + 8.0
        while sum(one.done() for one in wrong) < FLOOD - 1 - MOST_WAITING and time.monotonic() < until:
            time.sleep(0.01)
        assert get(server, None) == (401, None), "without a password"
        assert get(server, USER) == (200, None), "with one that was accepted before"
        late = clients.submit(get, server, OTHER)
        time.sleep(0.1)
        begun.set()
        assert late.result() == (200, None), "the first time, from another address"
        answers = Counter(one.result() for one in wrong)
    assert answers[401, None] <= 1 + MOST_WAITING
    assert answers[503, "5"] == FLOOD - answers[401, None]
    assert checked.total() == answers[401, None] + 1


def test_a_flood_of_scrapes_is_bounded_and_another_address_gets_the_metrics() -> None:
    begun, collected, registry = threading.Event(), Counter[str](), CollectorRegistry()
    gauge = Gauge("test", "a test", registry=registry)
    gauge.set_function(lambda: (begun.wait(10.0), collected.update(["test"]), 1.0)[-1])
    with (
        closing(WebServer(registry, "127.0.0.1", 0, lambda: True)) as server,
        ThreadPoolExecutor(FLOOD + 1) as clients,
    ):
        flood = [clients.submit(get, server, None, ATTACKER, "/metrics") for _ in range(FLOOD)]
        until = time.monotonic() + 5.0
        while sum(one.done() for one in flood) < FLOOD - 1 - MOST_WAITING and time.monotonic() < until:
            time.sleep(0.01)
        late = clients.submit(get, server, None, PROBE, "/metrics")
        time.sleep(0.1)
        begun.set()
        assert late.result() == (200, None)
        answers = Counter(one.result() for one in flood)
    assert answers[503, "5"] == FLOOD - answers[200, None]
    assert collected["test"] == answers[200, None] + 1 <= 2 + MOST_WAITING


class HeldThread(ThreadPoolExecutor):
    """Each piece ends when the test says so."""

    def __init__(self) -> None:
        super().__init__(1)
        self.begun: list[Future[Any]] = []

    def submit(self, *_: object, **__: object) -> Future[Any]:  # type: ignore[override]
        self.begun.append(Future())
        return self.begun[-1]


def test_a_piece_that_has_no_time_left_when_its_turn_comes_gives_it_to_the_next() -> None:
    async def run(thread: HeldThread) -> None:
        work = SlowWork[bool](thread)
        _, second, _ = pieces = [asyncio.create_task(work.result("a", lambda: True)) for _ in range(3)]
        await asyncio.sleep(0)
        thread.begun[0].set_result(True)
        await asyncio.sleep(0)  # the first piece has ended, and gives its turn away in the next step of the loop
        asyncio.get_running_loop().call_soon(second.cancel)
        await asyncio.sleep(0.1)
        assert len(thread.begun) == 2
        thread.begun[1].set_result(True)
        answers = await asyncio.gather(*pieces, return_exceptions=True)
        assert [answers[0], answers[2]] == [True, True]
        assert isinstance(answers[1], asyncio.CancelledError)

    with HeldThread() as thread:
        asyncio.run(run(thread))
