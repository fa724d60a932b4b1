"""The watchers of one cluster: no answer is unknown, the freshest one is shown, and the other one is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.clusters_world import AWAY, OneWorld, ToldWatcher, watched, with_a_hang
from support.page_world import HANG, PageWorld, an_incident, now_ms
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.picture import picture_of
from txnwatch.page.truth import PageState
from txnwatch.page.words import as_text
from txnwatch.state.model.errors import BadFactsError, SinkError

A, B = "https://watch-a.example:9464/", "https://watch-b.example:9464/"


def status(world: OneWorld) -> dict[str, Any]:
    store = world.store
    return picture_of(Knowledge(store=store, seen=store.seen, now_ms=world.asker.now_ms()))["status"]


def sentence(world: OneWorld) -> str:
    found = status(world)
    return f"{as_text(found['headline'], now_ms())} {as_text(found['detail'], now_ms())}"


def two(a: PageWorld | None = None, b: PageWorld | None = None, **changes: Any) -> OneWorld:
    """A cluster with two watchers."""
    watchers = [
        ToldWatcher("EU", A, a if a is not None else PageWorld()),
        ToldWatcher("EU", B, b if b is not None else PageWorld()),
    ]
    return OneWorld("eu", watchers, **changes)


def shown(world: OneWorld) -> list[str]:
    return [row["url"] for row in status(world)["watchers"] if row["is_shown"]]


def test_before_the_first_answer_nothing_is_known() -> None:
    assert status(OneWorld("eu"))["state"] is PageState.UNKNOWN
    assert "it has not answered yet" in sentence(OneWorld("eu"))


def test_a_watcher_that_answers_is_shown_with_what_it_says_of_itself() -> None:
    world = watched("eu")
    found = status(world)
    assert found["state"] is PageState.CLEAR
    (row,) = found["watchers"]
    assert (row["is_shown"], row["problem"], row["version"]) == (True, None, "1.2.3")
    assert (row["instance"], row["view"]) == ("watch-EU:/c", "log")
    assert abs(row["judged_ms"] - found["judged_ms"]) <= 1


REFUSED: dict[str, tuple[Callable[[ToldWatcher], None], str]] = {
    "away": (lambda one: setattr(one, "error", SinkError(AWAY)), "Connection refused"),
    "slow": (
        lambda one: setattr(one, "error", SinkError("w:1 has not answered within 5 s")),
        "not answered within 5 s",
    ),
    "refuses the login": (lambda one: setattr(one, "error", SinkError("it refuses the login")), "refuses the login"),
    "another version": (
        lambda one: one.changed.update(format=2),
        "expected facts of format 1, found 2, of version 1.2.3",
    ),
    "no facts": (lambda one: setattr(one, "error", BadFactsError("expected the facts")), "expected the facts"),
    "an invalid value": (lambda one: one.changed.update(judged_ms=-1), "judged_ms has an invalid value"),
    "another cluster": (
        lambda one: (one.changed.update(incidents=[]), setattr(one, "cluster_id", "US"))[0],
        "it speaks for another cluster: expected EU, found US",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_watcher_that_cannot_be_believed_makes_the_cluster_unknown_with_the_reason(name: str) -> None:
    refuse, reason = REFUSED[name]
    world = OneWorld("eu", [ToldWatcher("EU", A, with_a_hang("eu").watcher.world)], wanted_id="EU").show()
    assert status(world)["state"] is PageState.INCIDENT
    refuse(world.watcher)
    found = status(world.show())
    assert found["state"] is PageState.UNKNOWN
    assert found["why"] == "the source is read"
    assert sentence(world).startswith("Unknown. No watcher of this cluster tells what it sees.")
    assert reason in sentence(world)
    assert reason in found["watchers"][0]["problem"]
    assert "abort" not in str(picture_of(Knowledge(store=world.store, seen=world.store.seen, now_ms=now_ms())))
    assert any(reason in line for line in world.lines)


@pytest.mark.parametrize(("name", "is_believed"), [(None, True), ("eu", True), ("us", False)])
def test_a_watcher_that_has_another_name_for_its_cluster_is_not_believed(
    name: str | None, *, is_believed: bool
) -> None:
    world = watched("eu")
    world.watcher.changed["cluster_name"] = name
    world.show()
    assert (status(world)["state"] is PageState.CLEAR) is is_believed
    assert ("it speaks for another cluster: expected eu, found us" in sentence(world)) is not is_believed


def test_a_watcher_that_answers_again_is_believed_again_and_each_change_is_said_once() -> None:
    world = watched("eu")
    world.watcher.error = SinkError(AWAY)
    world.show().show()
    world.watcher.error = None
    assert status(world.show().show())["state"] is PageState.CLEAR
    where = "eu: https://watch.example:9464/"
    assert world.lines == [f"warning: {where}: {AWAY}", f"{where} answers again"]


def test_it_is_said_since_when_no_watcher_answers() -> None:
    world = watched("eu")
    clock = 100.0
    world.asker.clock_s = lambda: clock
    world.show()
    world.watcher.error = SinkError(AWAY)
    world.show()
    clock += 75.0
    now = world.asker.now_ms()
    assert f" It is so for 1 min 15 s. Reason: https://watch.example:9464/: {AWAY}." in as_text(
        status(world.show())["headline"], now
    )
    world.watcher.error = None
    world.show()
    world.watcher.error = SinkError(AWAY)
    assert " It is so for 0.0 s." in as_text(status(world.show())["headline"], world.asker.now_ms())


def test_a_watcher_that_evaluates_nothing_any_more_is_unknown() -> None:
    world = watched("eu", age_s=16)
    assert status(world)["state"] is PageState.UNKNOWN
    assert status(world)["why"] == "it was evaluated lately"


def test_an_answer_that_came_late_is_as_old_as_the_moment_in_which_it_was_asked_for() -> None:
    world = watched("eu")
    clock = 100.0

    def waits() -> None:
        nonlocal clock
        clock += 16.0

    world.asker.clock_s = lambda: clock
    world.watcher.before = waits
    assert status(world.show())["why"] == "it was evaluated lately"


@pytest.mark.parametrize("ahead_ms", [-86_400_000, -30_000, 30_000, 86_400_000])
def test_the_clock_of_a_watcher_may_differ(ahead_ms: int) -> None:
    world = watched("eu")
    world.watcher.ahead_ms = ahead_ms
    assert status(world.show())["state"] is PageState.CLEAR
    world.watcher.age_s = 16
    assert status(world.show())["state"] is PageState.UNKNOWN


def test_of_two_watchers_the_shown_one_stays_while_it_evaluates_and_the_other_takes_over() -> None:
    world = two()
    world.watchers[1].age_s = 0.1
    assert shown(world.show()) == [A], "the one that was shown first"
    world.watchers[0].error = SinkError(AWAY)
    assert shown(world.show()) == [B]
    assert status(world)["state"] is PageState.CLEAR
    assert f"{A}: {AWAY}" in sentence(world), "the other one is named"
    world.watchers[0].error = None
    assert shown(world.show()) == [B], "it does not go back and forth"
    world.watchers[1].age_s = 20
    assert shown(world.show()) == [A], "the one that has evaluated last"
    assert status(world)["state"] is PageState.CLEAR


def test_without_an_answer_of_both_the_reason_names_both() -> None:
    world = two()
    for one in world.watchers:
        one.error = SinkError(AWAY)
    assert f"{A}: {AWAY}; {B}: {AWAY}" in sentence(world.show())


def test_two_watchers_that_watch_other_topics_are_not_believed_also_if_one_goes_away() -> None:
    world = two()
    world.watchers[1].changed["topics_digest"] = "others"
    assert "its watchers watch other topics: each of them needs an entry of its own" in sentence(world.show())
    world.watchers[1].error = SinkError(AWAY)
    assert status(world.show())["state"] is PageState.UNKNOWN


def test_two_watchers_of_two_clusters_are_not_believed() -> None:
    world = two()
    world.watchers[1].cluster_id = "US"
    assert "its watchers speak for several clusters" in sentence(world.show())


def test_what_a_watcher_says_is_never_a_link_or_brokers_of_a_command() -> None:
    hostile = PageWorld()
    hostile.tell(an_incident("hang", 252, **{**HANG, "transactional_id": "https://evil.example/<script>"}))
    world = OneWorld(
        "eu", [ToldWatcher("EU", A, hostile, changed={"instance": "https://evil.example/\x1b"})], servers=""
    )
    world.show()
    picture = picture_of(Knowledge(store=world.store, seen=world.store.seen, now_ms=now_ms()))
    (row,) = picture["incidents"].values()
    look = "txnwatch explain --topic payments --partition 0 --bootstrap-server HOST:PORT"
    commands = [step["command"] for step in row["steps"] if step["command"] is not None]
    assert (commands, row["look"]) == ([look], look), "a person writes the brokers there"
    assert picture["status"]["search_command"] == "txnwatch find-hanging --fail-on-found --bootstrap-server HOST:PORT"
    assert picture["status"]["bootstrap_servers"] is None
    assert row["transactional_id"] is None, "it is no part of an address"
    (told,) = picture["status"]["watchers"]
    assert (told["url"], told["instance"]) == (A, "https://evil.example/\\x1b")


def test_the_commands_are_made_from_the_settings_of_this_process() -> None:
    picture = picture_of(Knowledge(store=with_a_hang("eu").store, seen=with_a_hang("eu").store.seen, now_ms=now_ms()))
    commands = [row["steps"][0]["command"] for row in picture["incidents"].values()]
    assert commands
    assert all(command.startswith("txnwatch explain ") for command in commands)
    assert all("--bootstrap-server kafka-1:9092" in command for command in commands)
    assert "kafka-of-the-watcher" not in str(picture)


def test_a_slow_watcher_and_a_page_without_a_viewer_are_asked_less_often() -> None:
    world = watched("eu")
    assert world.asker.ask(0) == 5_000
    world.asker.is_looked_at = lambda: True
    assert world.asker.ask(0) == 1_000
    times = iter([0.0, 0.9, *[1.0] * 99])
    world.asker.clock_s = lambda: next(times)
    assert 3_500 < world.asker.ask(0) <= 3_600
