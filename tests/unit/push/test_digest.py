"""How many messages a chat gets, and what a digest says."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from support.incidents import OWNER_VALUE, a_life, an_event
from support.push_world import START_MS
from txnwatch.push.digest import MINUTE_MS, MOST_CAUSES, MessagePace, Portion, digest_of, text_of
from txnwatch.push.message import message_of
from txnwatch.state.model.incident import IncidentEvent

MOST = 10
PAGE = "https://txnwatch.example/"
WHOLE = {"topic": None, "partition": None, "topic_id": None, "reason": None, "verdict": "late", "severity": "warning"}


def at(after_ms: int) -> Any:
    return START_MS + after_ms


def hangs(count: int, **changes: Any) -> list[IncidentEvent]:
    return [an_event(f"{changes} {number}", partition=number, **changes) for number in range(count)]


def test_a_few_events_are_told_one_by_one() -> None:
    pace = MessagePace(MOST)
    assert pace.next_portion(0, at(0)) == Portion(0)
    for number in range(MOST):
        assert pace.next_portion(MOST - number, at(number)) == Portion(1)
        pace.sent(1, at(number))


def test_more_than_are_left_of_a_minute_become_one_digest() -> None:
    pace = MessagePace(MOST)
    assert pace.next_portion(1_000, at(0)) == Portion(1_000)
    pace.sent(1_000, at(0))
    assert pace.next_portion(MOST, at(1)) == Portion(1), "the next few are told at once"
    assert pace.next_portion(MOST + 1, at(1)) == Portion(MOST + 1, MINUTE_MS - 1), "the next digest in a minute"
    assert pace.next_portion(MOST + 1, at(MINUTE_MS)) == Portion(MOST + 1)


def test_after_the_messages_of_a_minute_the_next_one_is_the_digest() -> None:
    pace = MessagePace(2)
    for number in range(2):
        pace.sent(1, at(number))
    assert pace.next_portion(1, at(2)) == Portion(1)
    pace.sent(1, at(2))
    assert pace.next_portion(1, at(3)) == Portion(1, MINUTE_MS - 1)
    assert pace.next_portion(1, at(MINUTE_MS)) == Portion(1), "the first message is a minute old"


@pytest.mark.parametrize("seed", range(20))
def test_no_minute_has_more_messages_than_the_limit_and_one_digest(seed: int) -> None:
    draw, pace, waiting, sent = random.Random(seed), MessagePace(MOST), 0, []
    for now_ms in range(0, 600_000, 500):
        waiting += draw.choice((0, 0, 0, 1, 3, 40))
        while waiting and not (portion := pace.next_portion(waiting, at(now_ms))).wait_ms:
            pace.sent(portion.events, at(now_ms))
            waiting -= portion.events
            sent.append(now_ms)
    assert all(sum(0 <= other - one < MINUTE_MS for other in sent) <= MOST + 1 for one in sent)


def test_a_clock_that_is_set_back_stops_no_message() -> None:
    pace = MessagePace(1)
    pace.sent(1, at(10 * MINUTE_MS))
    pace.sent(5, at(10 * MINUTE_MS))
    assert pace.next_portion(1, at(0)) == Portion(1)
    assert pace.next_portion(9, at(0)) == Portion(9)


def test_a_digest_has_the_causes_and_the_worst_one_whole() -> None:
    stopped = [{"group_id": "ledger", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}]
    worst = an_event("worst", topic="payments", consumer_groups=stopped, owner=OWNER_VALUE, cluster_name="eu")
    late = [an_event(f"{one}", transactional_id=f"dwh-{one}", cluster_name="eu", **WHOLE) for one in range(3)]
    over = [replace(event, cluster_name="eu") for name in ("over", "too") for event in a_life(name)]
    text = digest_of([*hangs(1_000, cluster_name="eu"), *late, worst, *over], PAGE)
    orders = "hanging (already_completed) on topic orders, owner: not known"
    assert text.splitlines()[:5] == [
        "[DIGEST] eu: 1,006 incidents of 3 causes: 1,004 open, 2 over (2 aborted by administrator)",
        "1 open: hanging (already_completed) on topic payments, owner: Checkout (#checkout-oncall)",
        f"1,000 open, 2 over (2 aborted by administrator): {orders}",
        "3 open: late of ids that begin with dwh, owner: not known",
        "Page: https://txnwatch.example/",
    ]
    assert text.endswith(f"The worst one:\n{message_of(worst, PAGE).as_text('opened')}")


def test_a_digest_of_ends_has_no_worst_one() -> None:
    text = digest_of([a_life("one")[-1], a_life("other")[-1]], None)
    assert text == (
        "[DIGEST] cluster: 2 incidents of 1 cause: 2 over (2 aborted by administrator)\n"
        "2 over (2 aborted by administrator): hanging (already_completed) on topic orders, owner: not known"
    )


def test_what_began_and_ended_meanwhile_is_over() -> None:
    assert "1 incident of 1 cause: 1 over" in digest_of(a_life("one"), None)


def test_a_digest_of_many_causes_is_short() -> None:
    events = [an_event(f"{number}", topic=f"topic{number}", transactional_id=None) for number in range(500)]
    text = digest_of(events, None)
    assert f"\n{500 - MOST_CAUSES} more causes.\n" in text
    assert len(text) < 4_000


def test_a_digest_with_the_longest_names_is_not_split() -> None:
    names = {
        "suggested_command": "c" * 1_000,
        "owner": {**OWNER_VALUE, "name": "n" * 200},
    }
    events = [
        an_event(letter, topic=letter + "t" * 247, transactional_id="*" * 32_766 + letter, **names)
        for letter in "abcdefghijklmnopqrst"
    ]
    text = digest_of(events, PAGE)
    assert len(text) <= 4_000
    assert "\nThe worst one: cluster: " in text
    assert "```" not in text


def test_one_event_is_a_message() -> None:
    assert text_of([an_event()], PAGE) == message_of(an_event(), PAGE).as_text("opened")
