"""The abort by hand from the search to the result, with the same protocol as the automatic abort."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.abort_stage import a_manual_abort
from support.fake_admin import FakeAdmin
from support.operators import RecordingOperatorsTopic
from txnwatch.sinks.abort.run_abort import FoundHang, ManualAbort, ManualTarget
from txnwatch.state.abort.rules import AbortSpec, Refused
from txnwatch.state.incidents.abort_protocol import FRESH_READ_BY_HAND_MS, MarkerResult
from txnwatch.state.model.errors import BrokerError, SinkError, TxnwatchError
from txnwatch.state.model.incident import (
    ActionResult,
    Decision,
    EndedBy,
    EndKind,
    IncidentEvent,
    IncidentStatus,
    Initiator,
    Refusal,
)
from txnwatch.state.model.values import TopicPartition

NAME = "checkout-1"


@pytest.fixture
def admin() -> FakeAdmin:
    """A cluster in which an ABORT marker was lost, and the id has been initialised since."""
    found = FakeAdmin()
    found.create_topic("orders")
    found.begin(NAME, *found.partitions)
    found.lose_markers(NAME, commit=False)
    found.init(NAME)
    return found


def an_abort(admin: FakeAdmin, start_offset: int = 0) -> ManualAbort:
    (partition,) = admin.partitions
    return a_manual_abort(
        admin, ManualTarget(partition, start_offset, None, is_commit=False, may_lose=False, may_be_unknown=True)
    )


def end(abort: ManualAbort, found: FoundHang, topic: RecordingOperatorsTopic) -> MarkerResult | Refused:
    return abort.end(found.incident, found.evidence, topic)


def opened_by_a_watch(found: FoundHang, **values: Any) -> IncidentEvent:
    """The last event of a watch's incident about the same transaction."""
    return replace(found.incident, incident_id="f" * 32, sequence=7, status=IncidentStatus.UPDATED, **values)


def test_it_announces_writes_reads_again_and_reports(admin: FakeAdmin) -> None:
    abort, topic = an_abort(admin), RecordingOperatorsTopic()
    found, published = abort.find(), topic.published
    assert isinstance(abort.decide(found.evidence, found.confirmation), AbortSpec)
    announced_before: list[int] = []
    admin.before("write_marker", lambda: announced_before.append(len(published)))
    result = end(abort, found, topic)
    assert isinstance(result, MarkerResult)
    assert result.result is ActionResult.VERIFIED
    assert announced_before == [1], "the announcement is published before the marker is written"
    assert [event.status for event in published] == ["opened", "updated", "resolved"]
    assert all(event.is_by_hand for event in published), "it has an incident of its own"
    action, resolution = published[-1].action, published[-1].resolution
    assert action is not None
    assert resolution is not None
    assert (action.initiator, action.by, action.result) == (Initiator.OPERATOR, "somebody@host", "verified")
    assert (resolution.how, resolution.by, resolution.detail) == (EndKind.ABORTED, EndedBy.TXNWATCH, "by hand")


def test_it_announces_itself_on_a_watchs_incident_and_leaves_the_end_to_the_watch_or_the_next_one(
    admin: FakeAdmin,
) -> None:
    abort = an_abort(admin)
    found = abort.find()
    known = opened_by_a_watch(found, open_since_ms=5, cluster_name="payments-eu")
    topic = RecordingOperatorsTopic(known)
    result = end(abort, found, topic)
    assert isinstance(result, MarkerResult)
    assert result.result is ActionResult.VERIFIED
    assert topic.asked == [(found.incident.span, 0)]
    told = [(event.incident_id, event.sequence, event.status) for event in topic.published]
    assert told == [(known.incident_id, 8, "updated")], "two writers of one end would end it twice"
    assert {event.open_since_ms for event in topic.published} == {5}
    assert {event.cluster_name for event in topic.published} == {"payments-eu"}, "the name is that of the watch"
    assert not any(event.is_by_hand for event in topic.published), "it stays the incident of the watch"


@pytest.mark.parametrize(("here", "shown"), [("unknown", "abort"), ("none", "none")])
def test_an_outcome_that_only_the_watch_knows_stays_in_its_incident_and_decides_nothing(
    admin: FakeAdmin, here: str, shown: str
) -> None:
    abort = an_abort(admin)
    found = abort.find()
    topic = RecordingOperatorsTopic(opened_by_a_watch(found, expected_outcome="abort"))
    found = found._replace(incident=replace(found.incident, expected_outcome=here))
    assert isinstance(end(abort, found, topic), MarkerResult)
    assert {event.expected_outcome for event in topic.published} == {shown}


@pytest.mark.parametrize(
    ("published", "refusal"),
    [("commit", None), ("unknown", None), ("abort", Refusal.COMMIT_NOT_PROVEN), ("none", Refusal.COMMIT_NOT_PROVEN)],
)
def test_an_unknown_outcome_is_completed_by_who_accepts_it_unless_a_watcher_says_that_it_was_no_commit(
    admin: FakeAdmin, published: str, refusal: Refusal | None
) -> None:
    (partition,) = admin.partitions
    target = ManualTarget(partition, 0, None, is_commit=True, may_lose=False, may_be_unknown=True)
    abort = a_manual_abort(admin, target)
    found = abort.find()
    assert found.evidence.outcome == "unknown"
    topic = RecordingOperatorsTopic(opened_by_a_watch(found, expected_outcome=published, outcome_by="watcher 1"))
    result = end(abort, found, topic)
    if refusal is None:
        assert isinstance(result, MarkerResult)
        assert (result.result, [one.commit for one in admin.markers]) == (ActionResult.VERIFIED, [True])
    else:
        assert result == Refused(refusal, f"watcher 1 has published the outcome {published}")
        assert admin.markers == []


@pytest.mark.parametrize("may_lose", [False, True])
def test_a_commit_that_only_the_watch_knows_is_aborted_only_by_who_may_lose_it(
    admin: FakeAdmin, *, may_lose: bool
) -> None:
    (partition,) = admin.partitions
    target = ManualTarget(partition, 0, None, is_commit=False, may_lose=may_lose, may_be_unknown=True)
    abort = a_manual_abort(admin, target)
    found = abort.find()
    told = opened_by_a_watch(found, expected_outcome="commit", outcome_by="watcher 1")
    result = end(abort, found, RecordingOperatorsTopic(told))
    if may_lose:
        assert isinstance(result, MarkerResult)
    else:
        said = "watcher 1 has published the outcome commit"
        assert result == Refused(Refusal.OUTCOME_WAS_COMMIT, said)
    assert bool(admin.markers) is may_lose


def test_an_announcement_that_takes_too_long_leads_to_no_marker(admin: FakeAdmin) -> None:
    clock = [1_000_000]
    abort = a_manual_abort(admin, an_abort(admin).target, lambda: clock[0])
    found = abort.find()

    def take(ms: int) -> None:
        clock[0] += ms

    late = RecordingOperatorsTopic(before=lambda: take(FRESH_READ_BY_HAND_MS + 1))
    result = end(abort, found, late)
    assert isinstance(result, MarkerResult)
    assert result.result is ActionResult.FAILED
    told = "no marker was written: the fresh read began 31 s ago, and the limit is 30 s; run the command again"
    assert (result.detail or "").startswith(told)
    assert admin.markers == []
    assert [event.action.result for event in late.published if event.action is not None] == [None, "failed", "failed"]
    in_time = RecordingOperatorsTopic(before=lambda: take(FRESH_READ_BY_HAND_MS))
    again = end(abort, found, in_time)
    assert isinstance(again, MarkerResult)
    assert again.result is ActionResult.VERIFIED


def test_the_fresh_read_follows_the_read_of_the_events_topic(admin: FakeAdmin) -> None:
    abort, topic = an_abort(admin), RecordingOperatorsTopic()
    found = abort.find()
    admin.asked.clear()
    admin.before("read_partitions", lambda: topic.asked.append("fresh read"))
    end(abort, found, topic)
    assert topic.asked == [(found.incident.span, 0), "fresh read"]


def test_a_marker_that_no_broker_has_received_is_reported_as_not_written(admin: FakeAdmin) -> None:
    abort, topic = an_abort(admin), RecordingOperatorsTopic()
    found = abort.find()
    (partition,) = admin.partitions
    admin.before("write_marker", lambda: admin.move_leader(partition, 2))
    result = end(abort, found, topic)
    assert isinstance(result, MarkerResult)
    assert result.result is ActionResult.FAILED
    assert (result.detail or "").startswith("no marker was written: the leader changed")
    assert admin.markers == []


def deny(admin: FakeAdmin) -> None:
    admin.mark = lambda _: "CLUSTER_AUTHORIZATION_FAILED"  # type: ignore[method-assign,assignment]


def take_no_effect(admin: FakeAdmin) -> None:
    admin.mark = lambda _: None  # type: ignore[method-assign,assignment]


def move_the_leader(admin: FakeAdmin) -> None:
    admin.before("write_marker", lambda: admin.move_leader(*admin.partitions, 2))


def hide_the_partition(admin: FakeAdmin) -> None:
    """After the marker, which has no effect, nothing can be read."""
    take_no_effect(admin)
    admin.before("write_marker", lambda: admin.problems.update(dict.fromkeys(admin.partitions, "NO_LEADER")))


WITHOUT_AN_END: dict[str, Callable[[FakeAdmin], None]] = {
    "no broker has received the marker": move_the_leader,
    "a broker denies it": deny,
    "it is still open": take_no_effect,
    "it cannot be read again": hide_the_partition,
}


@pytest.mark.parametrize("happens", WITHOUT_AN_END.values(), ids=WITHOUT_AN_END.keys())
def test_an_abort_that_saw_no_end_ends_the_incident_that_it_has_opened(
    admin: FakeAdmin, happens: Callable[[FakeAdmin], None]
) -> None:
    """Nobody else would: without a watch it would be open for ever."""
    abort, topic = an_abort(admin), RecordingOperatorsTopic()
    found = abort.find()
    happens(admin)
    end(abort, found, topic)
    assert [event.status for event in topic.published] == ["opened", "updated", "resolved"]
    before, last = topic.published[-2:]
    assert last.resolution is not None
    assert (last.resolution.how, last.resolution.by) == (EndKind.GIVEN_UP, EndedBy.UNKNOWN)
    assert last.action == before.action, "the result stays"
    assert last.is_by_hand


@pytest.mark.parametrize("happens", WITHOUT_AN_END.values(), ids=WITHOUT_AN_END.keys())
def test_an_abort_that_saw_no_end_leaves_the_incident_of_a_watch_open(
    admin: FakeAdmin, happens: Callable[[FakeAdmin], None]
) -> None:
    abort = an_abort(admin)
    found = abort.find()
    topic = RecordingOperatorsTopic(opened_by_a_watch(found))
    happens(admin)
    end(abort, found, topic)
    is_seen_open = happens is not hide_the_partition
    assert [event.status for event in topic.published] == ["updated"] * (2 if is_seen_open else 1)


def test_without_an_announcement_nothing_is_written(admin: FakeAdmin) -> None:
    abort = an_abort(admin)
    found = abort.find()

    def refuse() -> None:
        raise SinkError("topic txnwatch.events: not acknowledged")

    with pytest.raises(SinkError, match="not acknowledged"):
        end(abort, found, RecordingOperatorsTopic(before=refuse))
    assert abort.find().incident.incident_id == found.incident.incident_id, "it still hangs"


def test_a_result_that_cannot_be_published_is_still_shown(admin: FakeAdmin) -> None:
    abort, topic = an_abort(admin), RecordingOperatorsTopic()
    found = abort.find()

    def only_once() -> None:
        if topic.published:
            raise SinkError("topic txnwatch.events: not acknowledged")

    topic.before = only_once
    result = end(abort, found, topic)
    assert isinstance(result, MarkerResult)
    assert result.result is ActionResult.VERIFIED
    assert "the event could not be delivered" in (result.detail or "")


def test_a_broker_that_denies_it_is_a_refusal_and_published_as_one(admin: FakeAdmin) -> None:
    abort, topic = an_abort(admin), RecordingOperatorsTopic()
    found, published = abort.find(), topic.published
    admin.mark = lambda _: "CLUSTER_AUTHORIZATION_FAILED"  # type: ignore[method-assign,assignment]
    result = end(abort, found, topic)
    assert isinstance(result, Refused)
    assert result.refusal is Refusal.NOT_AUTHORIZED
    action = published[-1].action
    assert action is not None
    assert (action.decision, action.refusal, action.result) == (Decision.REFUSED, Refusal.NOT_AUTHORIZED, None)


def test_a_live_transaction_and_an_unknown_one_are_not_found(admin: FakeAdmin) -> None:
    with pytest.raises(TxnwatchError, match=r"found one from offset 0 \(producer id"):
        an_abort(admin, start_offset=7).find()
    admin.begin(NAME, *admin.partitions)
    with pytest.raises(TxnwatchError, match="it does not hang"):
        an_abort(admin).find()


def test_a_partition_that_is_not_shown_is_not_called_empty(admin: FakeAdmin) -> None:
    admin.create_topic("payments")
    target = ManualTarget(TopicPartition("payments", 0), 0, None, is_commit=False, may_lose=False, may_be_unknown=True)
    abort = a_manual_abort(admin, target)
    admin.problems[target.partition] = "NO_LEADER"
    with pytest.raises(BrokerError, match="NO_LEADER"):
        abort.find()


@pytest.mark.parametrize(
    ("may_be_unknown", "may_lose", "more"),
    [(False, False, set()), (True, False, {"unknown"}), (False, True, {"unknown", "commit"})],
)
def test_what_a_person_accepts_is_what_may_be_lost(
    admin: FakeAdmin, *, may_be_unknown: bool, may_lose: bool, more: set[str]
) -> None:
    (partition,) = admin.partitions
    target = ManualTarget(partition, 0, None, is_commit=False, may_lose=may_lose, may_be_unknown=may_be_unknown)
    assert target.policy.outcomes == {"abort", "none"} | more
    abort = a_manual_abort(admin, target)
    found = abort.find()
    assert found.evidence.outcome == "unknown"
    topic = RecordingOperatorsTopic()
    result = end(abort, found, topic)
    if more:
        assert isinstance(result, MarkerResult)
        (said,) = {event.action.detail for event in topic.published if event.action is not None}
        assert said == "by hand: the outcome is unknown, and the operator has accepted that"
    else:
        assert isinstance(result, Refused)
        assert (result.refusal, admin.markers) == (Refusal.OUTCOME_UNKNOWN, [])
