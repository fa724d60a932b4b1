"""Unknown says why; a start shows its steps; a target that fails is seen; and it is shown who speaks."""

from __future__ import annotations

from typing import Any

import pytest

from support.page_world import OWNERS, PageWorld, a_busy_cluster, a_calm_cluster, now_ms
from txnwatch.page.live_picture import encode
from txnwatch.page.picture import picture_of
from txnwatch.page.store import StartStep, TargetRow
from txnwatch.page.watcher_facts import decoded, facts_of
from txnwatch.page.words import as_text
from txnwatch.state.model.values import TimestampMs

AWAY = "no broker of kafka-1:9092 has answered for 15 s; a new connection fails: connection refused"


def status(world: PageWorld) -> dict[str, Any]:
    known = world.knowledge()
    found: dict[str, Any] = picture_of(known)["status"]
    return found


def sentence(world: PageWorld) -> str:
    return as_text(status(world)["headline"], now_ms())


def test_unknown_has_the_warning_of_the_log() -> None:
    world = a_calm_cluster()
    world.batch(TimestampMs(now_ms() - 20_000))
    world.store.warn(AWAY, TimestampMs(now_ms() - 4_000))
    assert sentence(world) == (
        f"Unknown. The last evaluated barrier is 20 s old. A new hang would not be seen. The log, 4.0 s ago: {AWAY}."
    )


def test_unknown_has_no_tone_of_an_incident() -> None:
    world = a_busy_cluster()
    world.batch(TimestampMs(now_ms() - 20_000))
    assert (status(world)["state"], status(world)["tone"]) == ("unknown", "unknown")


def test_a_warning_from_before_the_last_barrier_is_no_reason() -> None:
    world = a_calm_cluster()
    world.store.warn(AWAY, TimestampMs(now_ms() - 60_000))
    world.batch(TimestampMs(now_ms() - 20_000))
    assert "The log" not in sentence(world)


def test_what_is_known_needs_no_warning() -> None:
    world = a_calm_cluster()
    world.store.warn(AWAY, now_ms())
    assert sentence(world).startswith("All clear.")


def test_a_warning_is_shown_without_secrets_and_control_characters() -> None:
    world = PageWorld()
    world.store.warn("failed: password=hunter2 \x1b[31m" + "x" * 10_000, now_ms())
    assert "hunter2" not in sentence(world)
    assert sentence(world).isprintable()
    assert len(sentence(world)) < 600


@pytest.mark.parametrize("step", StartStep)
def test_a_start_shows_its_steps(step: StartStep) -> None:
    world = PageWorld()
    world.store.step = step
    found = status(world)["start"]
    assert [one["state"] for one in found] == [
        "done" if other < step else "now" if other == step else "to come" for other in StartStep
    ]


def test_a_watch_that_is_ready_shows_no_steps() -> None:
    world = a_calm_cluster()
    world.store.step = StartStep.LOGS
    assert status(world)["start"] is None
    world.is_ready = False
    world.batch()
    assert status(world)["start"][-1]["state"] == "now"


def test_a_target_that_fails_is_seen() -> None:
    world = a_busy_cluster()
    oldest_ms = TimestampMs(now_ms() - 90_000)
    world.targets = (
        TargetRow("txnwatch-events", 0),
        TargetRow("webhook \x1b[2J", 12, oldest_ms, "chat:443 answers 503"),
    )
    world.batch()
    assert status(world)["targets"] == [
        {"name": "txnwatch-events", "waiting": 0, "oldest_ms": None, "problem": None, "is_stopped": False},
        {
            "name": "webhook \\x1b[2J",
            "waiting": 12,
            "oldest_ms": oldest_ms,
            "problem": "chat:443 answers 503",
            "is_stopped": False,
        },
    ]


@pytest.mark.parametrize(("speaks", "speaker"), [(True, "watch-0:/c"), (False, "watch-1:/c"), (False, None)])
def test_it_is_shown_who_speaks(speaks: bool, speaker: str | None) -> None:  # noqa: FBT001 - pytest
    world = a_busy_cluster()
    world.speaks, world.speaker = speaks, speaker
    world.batch()
    assert (status(world)["speaks"], status(world)["speaker"]) == (speaks, speaker)


def test_the_page_of_several_clusters_knows_the_same() -> None:
    world = a_busy_cluster()
    world.targets, world.speaks, world.speaker = (TargetRow("webhook a", 1, now_ms(), "503"),), False, "watch-1:/c"
    world.batch()
    world.store.warn(AWAY, now_ms())
    world.store.step = StartStep.LOGS
    found = decoded(encode(facts_of(world.store, "1", {}, now_ms())))
    known = found.known(OWNERS)
    assert (tuple(known.targets), known.speaks, known.speaker) == (world.targets, False, "watch-1:/c")
    assert found.warning is not None
    assert (found.warning.text, found.step) == (AWAY, StartStep.LOGS)


def test_the_bootstrap_servers_are_shown() -> None:
    assert status(a_calm_cluster())["bootstrap_servers"] == "kafka-1:9092"
