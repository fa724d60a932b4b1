"""The decisions of the protocol, as tables: what a read after a marker shows, and what is reported of it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from support.incidents import an_event
from txnwatch.state.abort.rules import AbortSpec
from txnwatch.state.incidents.abort_protocol import (
    ABANDONED_MS,
    MarkerResult,
    action,
    announcement,
    closed,
    is_left_without_result,
    is_own_marker,
    not_written,
    open_until,
    recovered,
    reported,
    resolution,
    still_open_or_unreadable,
    with_answer,
)
from txnwatch.state.model.incident import (
    Action,
    ActionResult,
    Decision,
    EndedBy,
    EndKind,
    Evidence,
    Initiator,
    Refusal,
    span_incident_id,
)
from txnwatch.state.model.ports import ActiveProducer, MarkerSpec, PartitionReading
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import ErrorCode, Problem, TopicPartition

R = ActionResult
EVENT = an_event(evidence=Evidence(complete=True, end_before=150, leader_epoch=4))
PLACE = TopicPartition("orders", 3)
START = EVENT.txn_start_offset or 0
OPEN_ROW = ActiveProducer(EVENT.producer_id, 2, 5, 0, 0, START)
READING = PartitionReading(PLACE, topic_id=EVENT.topic_id or "", leader_epoch=4, last_stable_offset=200)
WRITTEN = MarkerSpec(PLACE, EVENT.producer_id, 2, 1)
OURS = Marker(160, 2, commit=False, coordinator_epoch=1, timestamp_ms=0)
BEGUN = action(Decision.ABORT, "here", 1_000, spec=AbortSpec(WRITTEN), stable_before=100)

AFTER: dict[str, tuple[PartitionReading, ActionResult | None]] = {
    "still open": (replace(READING, producers=(OPEN_ROW,)), R.STILL_OPEN),
    "closed": (READING, None),
    "closed, and another transaction is open": (
        replace(READING, producers=(OPEN_ROW._replace(txn_start_offset=START + 1),)),
        None,
    ),
    "closed, and another producer has one open": (
        replace(READING, producers=(OPEN_ROW._replace(producer_id=1),)),
        None,
    ),
    "not read": (replace(READING, problem=Problem("NO_LEADER")), R.UNKNOWN),
    "another topic of the name": (replace(READING, topic_id="another"), R.UNKNOWN),
}


@pytest.mark.parametrize(("reading", "result"), AFTER.values(), ids=AFTER.keys())
def test_the_read_after_the_marker_gives_the_expected_result(
    reading: PartitionReading, result: ActionResult | None
) -> None:
    found = still_open_or_unreadable(EVENT, reading)
    assert (found.result if found is not None else None) == result
    assert found is None or not found.is_closed


def test_the_closing_marker_is_searched_above_an_end_of_the_same_log_only() -> None:
    assert open_until(EVENT, READING) == 150
    assert open_until(EVENT, replace(READING, leader_epoch=5)) == START
    assert open_until(replace(EVENT, evidence=Evidence(complete=True)), READING) == START


CLOSED: dict[str, tuple[Marker | None, bool, ActionResult]] = {
    "an abort, as wanted": (OURS, False, R.VERIFIED),
    "a commit, as wanted": (msgspec.structs.replace(OURS, commit=True), True, R.VERIFIED),
    "a commit instead of an abort": (msgspec.structs.replace(OURS, commit=True), False, R.FAILED),
    "an abort instead of a commit": (OURS, True, R.FAILED),
    "its marker cannot be read": (None, False, R.UNKNOWN),
}


@pytest.mark.parametrize(("marker", "commit", "result"), CLOSED.values(), ids=CLOSED.keys())
def test_the_marker_that_closed_it_decides(marker: Marker | None, commit: bool, result: ActionResult) -> None:  # noqa: FBT001
    found = closed(marker, READING, commit=commit)
    assert (found.result, found.closed_by, found.is_closed) == (result, marker, True)


OPEN, DONE, NOT_READ = MarkerResult(R.STILL_OPEN), MarkerResult(R.VERIFIED, is_closed=True), MarkerResult(R.UNKNOWN)
DENIED = Problem("CLUSTER_AUTHORIZATION_FAILED", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
FENCED = Problem("INVALID_PRODUCER_EPOCH", 47)
ANSWERS: dict[str, tuple[MarkerResult, Problem | None, ActionResult, bool]] = {
    "accepted, and closed": (DONE, None, R.VERIFIED, False),
    "accepted, and still open": (OPEN, None, R.STILL_OPEN, False),
    "accepted, and not read": (NOT_READ, None, R.UNKNOWN, False),
    "refused, but closed": (DONE, FENCED, R.VERIFIED, False),
    "refused, and still open": (OPEN, FENCED, R.FAILED, False),
    "refused, and not read": (NOT_READ, Problem("no answer"), R.UNKNOWN, False),
    "denied": (OPEN, DENIED, R.FAILED, True),
    "denied, but closed by somebody": (DONE, DENIED, R.VERIFIED, False),
}


@pytest.mark.parametrize(("read", "problem", "result", "is_denied"), ANSWERS.values(), ids=ANSWERS.keys())
def test_the_broker_s_answer_never_replaces_the_read(
    read: MarkerResult,
    problem: Problem | None,
    result: ActionResult,
    is_denied: bool,  # noqa: FBT001
) -> None:
    found = with_answer(read, problem)
    assert (found.result, found.is_denied) == (result, is_denied)
    assert problem is None or str(problem) in (found.detail or "")


OWN: dict[str, tuple[Marker, Marker | None, bool]] = {
    "ours alone": (OURS, None, True),
    "a marker of a newer epoch follows": (OURS, msgspec.structs.replace(OURS, offset=170, producer_epoch=3), True),
    "a marker of our epoch follows: that one is ours": (OURS, msgspec.structs.replace(OURS, offset=170), False),
    "another producer epoch": (msgspec.structs.replace(OURS, producer_epoch=3), None, False),
    "another coordinator epoch": (msgspec.structs.replace(OURS, coordinator_epoch=2), None, False),
    "the other kind": (msgspec.structs.replace(OURS, commit=True), None, False),
}


@pytest.mark.parametrize(("marker", "next_one", "is_ours"), OWN.values(), ids=OWN.keys())
def test_the_closing_marker_is_our_own_only_if_no_other_explains_it(
    marker: Marker,
    next_one: Marker | None,
    is_ours: bool,  # noqa: FBT001
) -> None:
    assert is_own_marker(WRITTEN, marker, next_one) is is_ours


def test_the_announcement_has_the_fresh_read_and_without_a_watch_an_operator_opens_an_incident() -> None:
    reading = replace(READING, end_before=190, end_after=195, leader=1)
    event = announcement(EVENT, BEGUN, reading, is_published=True)
    assert (event.incident_id, event.sequence) == (EVENT.incident_id, EVENT.sequence + 1)
    assert (event.evidence.end_before, event.evidence.leader, event.action) == (190, 1, BEGUN)
    first_id = span_incident_id(EVENT.cluster_id, EVENT.topic_id or "", 3, EVENT.producer_id, START)
    found, begun = replace(EVENT, incident_id=first_id), replace(BEGUN, initiator=Initiator.OPERATOR)
    by_hand = announcement(found, begun, reading, is_published=False)
    assert by_hand.incident_id != first_id
    assert (by_hand.sequence, by_hand.is_by_hand) == (EVENT.sequence, True)


def test_a_missing_right_is_reported_as_a_refusal() -> None:
    found = MarkerResult(R.FAILED, "the broker answered CLUSTER_AUTHORIZATION_FAILED", is_denied=True)
    report = reported(BEGUN, found)
    assert (report.decision, report.refusal, report.result) == (Decision.REFUSED, Refusal.NOT_AUTHORIZED, None)
    assert "grant" in (report.detail or "")


def test_a_result_keeps_the_announcement_and_adds_what_was_read() -> None:
    report = reported(BEGUN, MarkerResult(R.VERIFIED, None, 220))
    assert report == replace(BEGUN, result=R.VERIFIED, last_stable_offset_after=220)
    assert not_written(BEGUN, "why") == replace(BEGUN, result=R.FAILED, detail="no marker was written: why")


LEFT: dict[str, tuple[Action | None, int, bool]] = {
    "no action": (None, 0, False),
    "our own": (BEGUN, 1_000, True),
    "with a result": (replace(BEGUN, result=R.VERIFIED), 10**9, False),
    "a refusal": (replace(BEGUN, decision=Decision.REFUSED), 10**9, False),
    "of another instance, just now": (replace(BEGUN, by="there"), 1_000 + ABANDONED_MS, False),
    "of another instance, long ago": (replace(BEGUN, by="there"), 1_001 + ABANDONED_MS, True),
    "a commit by hand, long ago": (
        replace(BEGUN, by="somebody@host", decision=Decision.COMMIT),
        1_001 + ABANDONED_MS,
        True,
    ),
}


@pytest.mark.parametrize(("announced", "now_ms", "is_left"), LEFT.values(), ids=LEFT.keys())
@pytest.mark.parametrize("ahead_ms", [-3_600_000, 0, 3_600_000], ids=["their clock is behind", "equal", "ahead"])
def test_the_expected_instance_finds_the_result_of_an_announcement(
    announced: Action | None,
    now_ms: int,
    ahead_ms: int,
    is_left: bool,  # noqa: FBT001
) -> None:
    if announced is not None:
        announced = replace(announced, at_ms=announced.at_ms + ahead_ms)
    assert is_left_without_result(announced, "here", 1_000, now_ms) is is_left


def test_a_result_that_is_found_later_is_from_the_log() -> None:
    assert recovered(BEGUN, MarkerResult(R.UNKNOWN)) is None
    still_open = recovered(BEGUN, MarkerResult(R.STILL_OPEN))
    assert still_open is not None
    assert (still_open.detail or "").endswith("so no marker has ended it")
    failed = recovered(BEGUN, closed(msgspec.structs.replace(OURS, commit=True), READING, commit=False))
    assert failed is not None
    assert (failed.detail or "").endswith("its data is committed")


ENDS: dict[str, tuple[MarkerResult, tuple[EndKind, EndedBy, int | None]]] = {
    "by our marker": (replace(DONE, closed_by=OURS, is_ours=True), (EndKind.ABORTED, EndedBy.TXNWATCH, 160)),
    "by a marker of our epoch": (replace(DONE, closed_by=OURS), (EndKind.ABORTED, EndedBy.ADMINISTRATOR, 160)),
    "by a marker of a newer epoch": (
        replace(DONE, closed_by=msgspec.structs.replace(OURS, producer_epoch=3, commit=True)),
        (EndKind.COMMITTED, EndedBy.COORDINATOR, 160),
    ),
    "not at all": (MarkerResult(R.STILL_OPEN), (EndKind.GIVEN_UP, EndedBy.UNKNOWN, None)),
    "by a marker that was not read": (DONE, (EndKind.NO_LONGER_OPEN, EndedBy.UNKNOWN, None)),
}


@pytest.mark.parametrize(("found", "end"), ENDS.values(), ids=ENDS.keys())
def test_the_incident_of_an_abort_by_hand_names_who_ended_it(
    found: MarkerResult, end: tuple[EndKind, EndedBy, int | None]
) -> None:
    ended = resolution(WRITTEN, found, 5)
    assert (ended.how, ended.by, ended.marker_offset) == end
