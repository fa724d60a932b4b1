"""What may be green from the events topic alone: every part of a heartbeat, and everything that cannot be believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.clusters_world import MISSING, OneWorld, a_beat, watched
from support.page_world import HANG, a_busy_cluster, an_incident, now_ms
from txnwatch.page import announced as announced_module
from txnwatch.page.announced import MOST_HEARTBEATS
from txnwatch.page.picture import Knowledge, Picture, picture_of
from txnwatch.page.truth import CONDITIONS, JUDGED_WITHIN_MS, Condition, PageState, judge
from txnwatch.page.words import as_text
from txnwatch.state.incidents.heartbeat import ACTIVE_MS, Heartbeat
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import SPENT_SEQUENCE, Overwritten
from txnwatch.state.model.values import CoordinatorAccess, TimestampMs, TopicPartition

CLUSTER = "EU"
INCIDENT = "0" * 32
NOT_OURS = BadEventError(SkipReason.UNSIGNED, "events-0@7: expected a signature, found no signature", INCIDENT)


def world(*beats: Heartbeat) -> OneWorld:
    return OneWorld("eu").tell(*beats)


def facts(of: OneWorld) -> Knowledge:
    return Knowledge(store=of.store, seen=of.store.seen, now_ms=now_ms(), ends=of.store.seen.ends)


def picture(of: OneWorld) -> Picture:
    return picture_of(facts(of))


def sentence(of: OneWorld) -> str:
    return as_text(picture(of)["status"]["headline"], now_ms())


def beat(age_s: float = 0.4, **changes: Any) -> Heartbeat:
    return a_beat(CLUSTER, age_s, **changes)


def refused() -> OneWorld:
    return world(beat()).tell(NOT_OURS)


def unreadable() -> OneWorld:
    found = world(beat())
    found.problem = "events topic 'txnwatch.events': no answer"
    return found.show()


def forged_document() -> OneWorld:
    found = world(beat())
    found.refusal = "expected a page document that is signed by a key of the file, found no signature"
    return found.show()


def with_a_hang() -> OneWorld:
    return world(beat()).tell(an_incident("hang", 60, **{**HANG, "cluster_id": CLUSTER}))


# One fault in what is announced, the condition that finds it, the state, and what the sentence has.
TABLE: tuple[tuple[str, Callable[[], OneWorld], PageState, str], ...] = (
    ("the source is read", unreadable, PageState.UNKNOWN, "events topic 'txnwatch.events': no answer"),
    ("a barrier was evaluated", world, PageState.UNKNOWN, "has not evaluated anything yet"),
    ("a barrier was evaluated", lambda: world(beat(-90)), PageState.UNKNOWN, "has not evaluated anything yet"),
    ("a barrier was evaluated", lambda: world(a_beat("US")), PageState.UNKNOWN, "has not evaluated anything yet"),
    (
        "it was evaluated lately",
        lambda: world(beat(61)),
        PageState.UNKNOWN,
        "The last evaluated barrier is 1 min 01 s old",
    ),
    (
        "it was evaluated lately",
        lambda: OneWorld("eu").with_redis(a_busy_cluster(), age_s=16),
        PageState.UNKNOWN,
        "The last evaluated barrier is 16 s old",
    ),
    (
        "the view shows hangs",
        lambda: world(beat(coordinator_view="none"), beat(instance="other:/c")),
        PageState.UNKNOWN,
        "no hang is proven",
    ),
    ("no incident is open", with_a_hang, PageState.INCIDENT, "payments-0 for 1 min"),
    ("the watch is ready", lambda: world(beat(is_ready=False)), PageState.UNKNOWN, "for the first time"),
    ("the watch is ready", lambda: world(beat(is_ready=None)), PageState.UNKNOWN, "does not say whether"),
    (
        "the coordinators' log is read",
        lambda: world(beat(is_coordinator_read=False)),
        PageState.UNKNOWN,
        "log is not read",
    ),
    ("every document is believed", refused, PageState.UNKNOWN, "1 record of the events topic cannot be believed"),
    ("every document is believed", forged_document, PageState.UNKNOWN, "found no signature"),
    (
        "all open data is decided",
        lambda: world(beat(undecided_spans=1, undecided_names=("orders-0@5 of producer id 7: broker 2 must return",))),
        PageState.PARTIAL,
        "Whether 1 open transaction will ever end is not known: orders-0@5 of producer id 7: broker 2 must return.",
    ),
    (
        "every partition is proven",
        lambda: world(beat(unproven_partitions=2, unproven_names=("orders-1", "no partition"))),
        PageState.PARTIAL,
        "Nothing is known about 2 partitions: orders-1. The others are clear.",
    ),
    (
        "every partition is proven",
        lambda: world(beat(), beat(instance="other:/c", unproven_partitions=4, unproven_names=())),
        PageState.PARTIAL,
        "Nothing is known about 4 partitions. The others are clear.",
    ),
    ("the events topic has every event", lambda: world(beat(undelivered_events=3)), PageState.PARTIAL, "3 events"),
    ("the events topic has every event", lambda: world(beat(undelivered_events=None)), PageState.PARTIAL, "not known"),
    ("every verdict is detected", lambda: world(beat(coordinator_view="api")), PageState.LIMITED, "are not detected"),
)


def faults(conditions: Sequence[Condition]) -> list[str]:
    """The rows that these conditions answer otherwise."""
    return [why for why, make, state, _ in TABLE if judge(facts(make()).facts, conditions) != (state, why)]


def test_a_good_heartbeat_makes_it_green() -> None:
    assert sentence(world(beat())).startswith("All clear.")
    assert judge(facts(world(beat(59))).facts).state is PageState.CLEAR, "heartbeats have pauses"
    assert judge(facts(OneWorld("eu").with_redis(a_busy_cluster())).facts).state is PageState.CLEAR


def test_each_fault_alone_keeps_it_from_being_green_and_is_told() -> None:
    assert faults(CONDITIONS) == []
    assert {why for why, _, _, _ in TABLE} == {condition.name for condition in CONDITIONS}
    assert [why for why, make, _, text in TABLE if text not in sentence(make())] == []


@pytest.mark.parametrize("broken", CONDITIONS, ids=[one.name for one in CONDITIONS])
def test_a_condition_that_always_holds_is_found(broken: Condition) -> None:
    planted = broken._replace(is_met=lambda _: True)
    assert faults([planted if one is broken else one for one in CONDITIONS]) != []


def test_two_watchers_count_together() -> None:
    """As for `status`: one of them may have just started, and topics may be divided between them."""
    started = beat(instance="other:/c", is_ready=False, is_coordinator_read=False, scanned_partitions=7)
    assert judge(facts(world(beat(), started)).facts).state is PageState.CLEAR
    api = beat(instance="other:/c", coordinator_view="api")
    assert world(beat(), api).store.access is CoordinatorAccess.LOG
    gone = beat(4_000, instance="gone:/c", undelivered_events=9, unproven_partitions=9)
    both = world(beat(), gone)
    assert judge(facts(both).facts).state is PageState.CLEAR
    assert [one["is_active"] for one in picture(both)["status"]["watchers"]] == [True, False]


def test_a_silent_watcher_of_other_topics_leaves_its_partitions_unknown() -> None:
    """Topics may be divided between watchers. One with the same settings covers the partitions of the other."""
    mine, others = {"topics_digest": "payments"}, {"topics_digest": "orders"}
    gone = beat(100, instance="gone:/c", scanned_partitions=900, census_partitions=0, **others)
    alone = world(beat(**mine), gone)
    assert judge(facts(alone).facts).state is PageState.PARTIAL
    assert sentence(alone) == "Nothing is known about 900 partitions. The others are clear."
    assert judge(facts(world(beat(**mine), gone, beat(instance="b:/c", **others))).facts).state is PageState.CLEAR
    long_ago = beat(25 * 3_600, instance="gone:/c", **others)
    assert judge(facts(world(beat(**mine), long_ago)).facts).state is PageState.CLEAR


def test_for_each_choice_of_topics_a_watcher_is_ready() -> None:
    started = beat(instance="other:/c", is_ready=False, topics_digest="orders")
    found = judge(facts(world(beat(topics_digest="payments"), started)).facts)
    assert (found.state, found.why) == (PageState.UNKNOWN, "the watch is ready")


def test_a_refused_record_counts_until_a_valid_one_follows() -> None:
    found = refused()
    event = replace(an_incident("hang", 60, **{**HANG, "cluster_id": CLUSTER}), incident_id=INCIDENT)
    assert judge(facts(found.tell(event)).facts).state is PageState.INCIDENT
    assert facts(found).facts.unread == 0
    assert judge(facts(refused().tell(Overwritten(INCIDENT))).facts).state is PageState.CLEAR


def test_a_refused_record_is_told_beside_an_incident() -> None:
    found = with_a_hang().tell(NOT_OURS)
    assert picture(found)["status"]["state"] is PageState.INCIDENT
    assert "cannot be believed" in as_text(picture(found)["status"]["detail"], now_ms())


def test_a_refused_heartbeat_hides_nothing_but_is_the_reason_if_there_is_no_other() -> None:
    bad = BadEventError(SkipReason.BAD_SIGNATURE, "events-0@9: expected a signature, found one of another key")
    assert judge(facts(world(beat()).tell(bad)).facts).state is PageState.CLEAR
    assert "found one of another key" in sentence(world().tell(bad))


def test_an_event_of_another_cluster_is_about_no_cluster_here() -> None:
    other = an_incident("hang", 60, **{**HANG, "cluster_id": "US"})
    assert judge(facts(world(beat()).tell(other)).facts).state is PageState.CLEAR


def test_the_order_on_the_topic_decides() -> None:
    found = with_a_hang()
    again = an_incident("hang", 60, **{**HANG, "cluster_id": CLUSTER, "transactional_id": "forged"})
    assert picture(found.tell(again))["incidents"].popitem()[1]["holder"] == "checkout-7"
    spent = an_incident("spent", 60, **{**HANG, "cluster_id": CLUSTER}, sequence=SPENT_SEQUENCE)
    assert len(picture(found.tell(spent))["incidents"]) == 1


def test_a_command_from_the_topic_is_never_shown() -> None:
    found = world(beat()).tell(an_incident("hang", 60, suggested_command="rm -rf /", **{**HANG, "cluster_id": CLUSTER}))
    (row,) = picture(found)["incidents"].values()
    first, second = row["steps"]
    assert first["command"].startswith("txnwatch explain --topic payments --partition 0")
    assert second["command"] is None


def test_without_a_document_the_open_transactions_are_not_known() -> None:
    status = picture(world(beat()))["status"]
    assert (status["open_missing"], status["open_transactions"]) == (MISSING, None)
    assert "open transaction" not in as_text(status["detail"], now_ms())
    found = picture(OneWorld("eu").with_redis(a_busy_cluster()))
    assert found["status"]["open_missing"] is None
    assert found["status"]["open_transactions"] == 9_871
    assert found["lanes"]["payments-0"]["hidden"] == 48_112


def test_an_old_document_shows_no_lane_while_heartbeats_go_on() -> None:
    found = OneWorld("eu").with_redis(a_busy_cluster(), age_s=16).tell(beat(0.1))
    assert found.store.seen.open_missing == MISSING
    assert found.store.seen.judged_within_ms == ACTIVE_MS
    assert judge(facts(found).facts).state is PageState.CLEAR


def test_a_document_of_the_future_is_not_believed() -> None:
    found = OneWorld("eu").with_redis(a_busy_cluster(), age_s=-90)
    assert found.store.seen.judged_ms is None
    assert found.store.seen.open_missing == MISSING


def test_a_clock_that_is_ahead_makes_nothing_younger_than_now() -> None:
    found = world(beat(-50))
    at = facts(found)
    assert at.facts.judged_ms is not None
    assert at.facts.judged_ms <= at.now_ms
    assert found.store.seen.judged_within_ms >= JUDGED_WITHIN_MS


def test_what_a_heartbeat_does_not_name_is_not_known_about_a_partition() -> None:
    reach = world(beat(unproven_partitions=3, unproven_names=("orders-1",))).store.seen.reach
    assert reach is not None
    assert reach.lacks(TopicPartition("orders", 1)) is True
    assert reach.lacks(TopicPartition("orders", 2)) is None
    whole = watched("eu").store.seen.reach
    assert whole is not None
    assert whole.lacks(TopicPartition("orders", 2)) is False


def test_any_number_of_forged_records_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    found = world(*(beat(instance=f"{number}:/c") for number in range(MOST_HEARTBEATS + 5)))
    assert len(found.announced.heartbeats(None, now_ms())) == MOST_HEARTBEATS
    assert len(found.store.seen.watchers) == 20
    monkeypatch.setattr(announced_module, "MOST_INCIDENTS", 3)
    found.tell(*(an_incident(f"hang-{number}", 60, cluster_id=CLUSTER) for number in range(5)))
    assert len(found.store.seen.incidents or ()) == 3
    assert "more than 3 incidents" in sentence(found)
    assert judge(facts(found).facts).state is PageState.UNKNOWN


def test_time_alone_makes_it_unknown() -> None:
    found = world(beat())
    known = replace(facts(found), now_ms=TimestampMs(now_ms() + ACTIVE_MS))
    assert judge(known.facts).why == "it was evaluated lately"
