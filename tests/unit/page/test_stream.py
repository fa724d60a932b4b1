"""The stream: a snapshot first, then changes; a viewer that reads nothing costs nobody anything."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from starlette.requests import ClientDisconnect, Request

from support.page_client import a_stream, applied, get
from support.page_world import PageWorld, a_busy_cluster, a_calm_cluster, a_count, an_incident, an_open, now_ms
from support.waiting import eventually
from txnwatch.page import served_page
from txnwatch.page.live_picture import MOST, StreamOfOne, Viewers
from txnwatch.page.packed import Piece
from txnwatch.page.truth import PageState
from txnwatch.state.model.values import TimestampMs
from txnwatch.web import server as server_module


def test_the_changes_lead_to_the_snapshot_of_a_later_viewer() -> None:
    world = a_calm_cluster()
    with world.served() as url, a_stream(url) as stream:
        picture = stream.until("snapshot")["picture"]
        for number in range(3):
            world.tell(an_incident(f"hang-{number}", 60, topic="payments", partition=number))
            world.batch()
            picture = applied(picture, stream.until("delta"))
        time.sleep(1.0)
        later = get(url, "/api/v1/snapshot").json
        assert picture["order"] == later["picture"]["order"]
        assert picture["incidents"].keys() == later["picture"]["incidents"].keys()


def test_an_incident_is_seen_within_a_second() -> None:
    world = a_calm_cluster()
    with world.served() as url, a_stream(url) as stream:
        stream.until("snapshot")
        world.tell(an_incident("hang", 60))
        since = time.monotonic()
        world.batch()
        delta = stream.until("delta")
        assert delta["set"]["status"]["state"] == PageState.INCIDENT
        assert time.monotonic() - since < 2.0


def test_an_incident_does_not_wait_for_the_pause_between_two_pictures() -> None:
    world = a_calm_cluster()
    waited_s = []
    with world.served() as url, a_stream(url) as stream:
        stream.until("snapshot")
        for number in range(5):
            time.sleep(0.6)
            world.open.pop()
            world.batch()
            stream.until("delta")
            since = time.monotonic()
            world.tell(an_incident(f"hang-{number}", 60, topic="payments", partition=number))
            world.batch()
            while "incidents" not in stream.until("delta")["set"]:
                pass
            waited_s.append(time.monotonic() - since)
            world.open.append(an_open(number, f"id-{number}", 9, ("audit", number, 5)))
    assert min(waited_s) < 0.3, "the pause takes half a second"


def test_a_quiet_watch_sends_only_that_it_is_there() -> None:
    world = PageWorld()
    with world.served() as url, a_stream(url) as stream:
        stream.until("snapshot")
        beat = stream.until("beat")
        assert beat["judged_ms"] is None
        assert beat["server_ms"] <= now_ms()
        assert set(beat) == {"server_ms", "judged_ms"}


def test_time_alone_makes_it_unknown() -> None:
    world = a_calm_cluster()
    world.batch(TimestampMs(now_ms() - 14_000))
    with world.served() as url, a_stream(url) as stream:
        assert stream.until("snapshot")["picture"]["status"]["state"] == PageState.CLEAR
        assert stream.until("delta")["set"]["status"]["state"] == PageState.UNKNOWN


def test_viewers_behind_one_address_get_every_place_and_one_too_many_is_asked_to_come_again() -> None:
    world = a_calm_cluster()
    with world.served() as url, ExitStack() as viewers:
        for number in range(MOST):
            assert viewers.enter_context(a_stream(url)).until("snapshot") is not None, number
        with a_stream(url) as one_more:
            assert one_more.status == 503
        assert get(url, "/api/v1/stream").headers["Retry-After"] == "10"
        with a_stream(url, "127.0.2.1") as of_another:
            assert of_another.until("snapshot") is not None, "the address with the most viewers gives one place up"
        assert get(url, "/-/healthy", "127.0.2.1").status == 200
        viewers.close()

        def has_room() -> bool | None:
            with a_stream(url) as stream:
                return stream.status == 200 or None

        assert eventually(has_room, 5.0, lambda: "room for a viewer")


def test_viewers_that_come_at_once_do_not_pass_the_limit() -> None:
    world = a_calm_cluster()
    with world.served() as url, ExitStack() as open_ones, ThreadPoolExecutor(30) as pool:
        streams = list(pool.map(lambda _: open_ones.enter_context(a_stream(url)), range(MOST + 30)))
        assert Counter(stream.status for stream in streams) == {200: MOST, 503: 30}


def test_a_place_goes_from_the_address_with_the_most_viewers_to_one_with_fewer() -> None:
    viewers = Viewers(lambda: (Piece(b"whole"),), lambda: (Piece(b"beat"),))
    of_proxy = [viewers.admit("10.0.0.1") for _ in range(MOST - 1)]
    alone = viewers.admit("10.0.0.2")
    assert viewers.admit("10.0.0.1") is None
    new = viewers.admit("10.0.0.3")
    assert new is not None
    assert len(viewers) == MOST
    last = of_proxy[-1]
    assert last is not None
    assert [one for one in (*of_proxy, alone, new) if one is not None and one.is_over] == [last]

    async def rest() -> list[bytes]:
        return [piece.plain async for found in viewers.messages(last, lambda: None) for piece in found]

    assert asyncio.run(rest()) == [b"retry: 2000\n\n", b": ended\n\n"]


def test_a_viewer_that_goes_before_the_first_byte_gives_its_place_back() -> None:
    viewers = Viewers(lambda: (), lambda: ())
    viewer = viewers.admit("10.0.0.1")
    assert viewer is not None

    async def gone(_: object) -> None:
        raise OSError("the client is gone")

    scope = {"type": "http", "headers": [], "asgi": {"spec_version": "2.4"}}
    with pytest.raises(ClientDisconnect):
        asyncio.run(StreamOfOne(Request(scope), viewers, viewer, lambda: None)(scope, _nothing, gone))
    assert len(viewers) == 0


async def _nothing() -> dict[str, str]:
    return {"type": "http.disconnect"}


def test_a_viewer_that_reads_nothing_delays_nobody() -> None:
    world = a_busy_cluster()
    with world.served() as url, a_stream(url) as deaf, a_stream(url, "127.0.0.2") as other:
        deaf.until("snapshot")
        other.until("snapshot")
        for number in range(30):
            world.tell(an_incident(f"hang-{number}", 60, transactional_id="z" * 32_000))
            world.batch()
            if number % 10 == 0:
                assert other.until("delta")["seq"] > 0
        since = time.monotonic()
        assert get(url, "/api/v1/status").status == 200
        assert time.monotonic() - since < 2.0


def test_spark_that_does_not_answer_delays_no_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "COLLECTING_S", 0.5)
    world, answered = a_busy_cluster(), threading.Event()
    world.site.ends = lambda: (answered.wait(20.0), world.ends)[1]
    with world.served() as url, a_stream(url) as stream:
        try:
            picture = stream.until("snapshot")["picture"]
            assert picture["lanes"]["payments-0"]["hidden"] is None, "not known"
            world.tell(an_incident("new", 60, topic="payments", partition=7))
            world.batch()
            since = time.monotonic()
            assert "set" in stream.until("delta")
            assert time.monotonic() - since < 3.0
            assert get(url, "/metrics").status == 503, "the one thread that asks Spark is busy"
        finally:
            answered.set()


def test_an_error_ends_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that went on would get beats and no changes: an old picture would look true."""
    monkeypatch.setattr(server_module, "SITE_PAUSE_S", 0.2)
    world = a_busy_cluster()
    with world.served() as url, a_stream(url) as stream:
        stream.until("snapshot")
        monkeypatch.setattr(served_page, "picture_of", lambda _: 1 / 0)
        world.batch()
        assert [kind for kind, _ in stream if kind == "bye"] == [], "it ends, and the process does not"
        monkeypatch.undo()

        def is_back() -> bool | None:
            with a_stream(url) as again:
                return (again.status == 200 and again.until("snapshot") is not None) or None

        assert eventually(is_back, 5.0, lambda: "a stream")


def test_a_picture_that_is_not_made_anew_gets_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in a beat is that of the picture: an old one must not look as if it were evaluated now."""
    world = a_calm_cluster()
    with world.served() as url, a_stream(url) as stream:
        judged_ms = stream.until("snapshot")["judged_ms"]

        async def stuck() -> None:
            await asyncio.sleep(0)

        monkeypatch.setattr(world.site.live, "refresh", stuck)
        world.batch()
        assert stream.until("beat")["judged_ms"] == judged_ms


@pytest.mark.parametrize("viewers", [0, 10])
def test_it_ends_at_once_and_says_so(viewers: int, capfd: pytest.CaptureFixture[str]) -> None:
    world = a_calm_cluster()
    with ExitStack() as looking:
        with world.served() as url:
            streams = [looking.enter_context(a_stream(url, f"127.0.0.{number + 2}")) for number in range(viewers)]
            for stream in streams:
                stream.until("snapshot")
            since = time.monotonic()
        assert time.monotonic() - since < 1.0
        assert [stream.until("bye") for stream in streams] == [{"why": "shutdown"}] * viewers
    assert "Traceback" not in capfd.readouterr().err


def test_a_watch_never_waits_for_a_viewer() -> None:
    """What a micro-batch pays, with viewers: a few references and a wake-up."""
    world = a_busy_cluster()
    with world.served() as url, a_stream(url) as stream:
        stream.until("snapshot")
        emitted, seen = [a_count({"Ongoing": 9_871}), *world.store.seen.lists], world.seen()
        times = []
        for _ in range(200):
            since = time.perf_counter()
            world.store.take(emitted, seen, now_ms())
            times.append(time.perf_counter() - since)
        assert sorted(times)[100] < 0.001
