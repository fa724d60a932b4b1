"""Incidents of other writers: none is continued as found here, none hides a hang, each one ends.

The ledger and the abort are the real ones; the topic is in memory, and anybody may write to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from support.abort_stage import AT_ONCE
from support.facts import transaction
from support.forged_events import (
    EVIL,
    Forgery,
    Topic,
    a_last_sequence,
    a_resolved,
    a_sequence,
    a_success,
    forged,
)
from support.incidents import an_event
from support.ledger_world import LedgerWorld
from txnwatch.state.evidence.ending import LOOK_AGAIN_MS, SECOND_LOOK_MS
from txnwatch.state.evidence.proven_hang import StoredFindings
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.incident import (
    Decision,
    IncidentEvent,
    Initiator,
    latest,
    repeat_incident_id,
    span_incident_id,
    transaction_incident_id,
)
from txnwatch.state.model.ports import BEING_READ, SpanHistory
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import AT_ONCE as NOW_DUE
from txnwatch.state.model.values import NEVER_MS, SpanStart
from txnwatch.state.model.verdicts import Verdict


@pytest.mark.parametrize("outcome", ["none", "commit", "abort"])
def test_a_second_incident_about_a_hang_is_never_continued_as_found_here(outcome: str) -> None:
    stage = Topic()
    stage.an_acknowledged_hang()
    second = forged(stage.last(), 4, incident_id="f" * 32, expected_outcome=outcome, suggested_command=EVIL)
    stage.log.records.append(replace(second, action=action(Decision.ABORT, "here", 1)))
    for _ in range(3):
        stage.batch(after_ms=70_000)
    ours = [event for event in stage.log.records if event.incident_id == "f" * 32][1:]
    assert ours, "its announcement gets its result"
    assert {event.expected_outcome for event in ours} == {"unknown"}
    assert not any("abort" in (event.suggested_command or "") for event in ours)
    assert stage.admin.markers == []
    assert len(stage.ledger.open_incidents) == 1


def test_an_end_by_our_own_marker_is_by_txnwatch() -> None:
    stage = Topic()
    producer_id = stage.hang_and_move_on()
    stage.batch()
    assert not stage.is_open(producer_id)
    (candidate,) = stage.emitted
    stage.batch(stage.ended(candidate))
    resolution = stage.last().resolution
    assert resolution is not None
    assert resolution.by == "txnwatch"


def test_an_abort_that_only_the_topic_knows_is_by_an_administrator_and_the_detail_has_the_claim() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.batch(candidate)
    stage.admin.init("checkout-1")
    stage.log.records.append(a_success(stage.last()))
    stage.batch()
    stage.batch(LedgerWorld.abort(stage, candidate))
    end = stage.last().resolution
    assert end is not None
    assert end.by == "administrator"
    assert "cannot prove" in (end.detail or "")


def test_a_lease_holder_that_does_nothing_is_reported() -> None:
    stage = Topic()
    stage.hang_and_move_on()
    stage.lease.held = False
    for _ in range(10):
        stage.batch(after_ms=70_000)
    assert stage.admin.markers == []
    assert len([line for line in stage.reports if "holds the lease and publishes no decision" in line]) == 1


def test_an_incident_known_only_from_the_topic_is_refused_with_an_event_after_a_while() -> None:
    stage = Topic()
    candidate = stage.hang()
    stage.emitted.append(candidate)
    stage.batch(candidate)
    stage.evidence.keep(StoredFindings())
    stage.restart()
    stage.repeated.clear()  # the state does not emit it again
    for _ in range(4):
        stage.batch(after_ms=70_000)
    assert stage.actions[-1:] == [("refused", "not_proven_here", None)]
    assert stage.admin.markers == []


def of_another_cluster(known: IncidentEvent) -> IncidentEvent:
    return replace(a_resolved(known), cluster_id="another")


@pytest.mark.parametrize("forge", [of_another_cluster, a_last_sequence, a_sequence])
def test_a_reader_of_the_topic_sees_the_end_of_the_incident(forge: Forgery) -> None:
    """A reader of the topic, as `status` is, sees the hang while it lasts and nothing when it is over."""
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.batch(candidate)
    stage.log.records.append(forge(stage.last()))
    for _ in range(3):
        stage.batch()
    for records in (stage.log.records, stage.log.compacted.values()):
        open_now = [one for one in latest(records).values() if one.is_open and one.cluster_id == "cluster"]
        assert [one.span for one in open_now] == [candidate_key(candidate)]
    stage.batch(LedgerWorld.abort(stage, candidate))
    for _ in range(3):
        stage.batch()
    for records in (stage.log.records, stage.log.compacted.values()):
        assert not [one for one in latest(records).values() if one.is_open]


def candidate_key(candidate: SpanCandidate) -> tuple[str, Any, int]:
    return candidate.span.topic_id, candidate.partition, candidate.producer_id


def of_nobody(stage: Topic, **changes: Any) -> IncidentEvent:
    """An incident about a transaction that never was."""
    place = {"topic": stage.partition.topic, "partition": stage.partition.partition, "producer_id": 4711}
    topic_id = stage.admin.partitions[stage.partition].topic_id
    return an_event(**{"cluster_id": "cluster", "topic_id": topic_id, "txn_start_offset": 0, **place, **changes})


def test_an_abort_by_hand_with_a_future_time_does_not_keep_an_incident_open() -> None:
    stage = Topic(mode="off")
    stage.admin.plain(stage.partition, 10)
    published = of_nobody(
        stage, time_ms=200_000_000_000_000, action=action(Decision.ABORT, "somebody", 1, initiator=Initiator.OPERATOR)
    )
    first = span_incident_id("cluster", published.topic_id or "", 0, published.producer_id, 0)
    stage.log.records.append(replace(published, incident_id=repeat_incident_id(first, 1)))
    assert stage.last().is_by_hand
    for _ in range(4):
        stage.batch(after_ms=61_000)
    assert stage.ledger.open_incidents == []


def test_an_incident_from_beyond_the_end_of_its_partition_ends() -> None:
    stage = Topic(mode="off")
    stage.admin.plain(stage.partition, 10)
    stage.log.records.append(of_nobody(stage, txn_start_offset=2**62))
    for _ in range(4):
        stage.batch(after_ms=61_000)
    assert stage.ledger.open_incidents == []


@pytest.mark.parametrize("changes", [{"verdict": "long_running", "severity": "info"}, {"severity": "info"}])
def test_a_forged_milder_verdict_about_a_transaction_is_corrected(changes: dict[str, Any]) -> None:
    stage = Topic(mode="off")
    owner = stage.admin.begin("slow", stage.partition)
    owner.state = S.PREPARE_COMMIT
    seen = transaction(4, S.PREPARE_COMMIT, stage.partition, producer_id=owner.producer_id, transactional_id="slow")
    view = msgspec.structs.replace(seen.view, start_ms=owner.start_ms)
    now_ms = stage.now_ms
    stage.batch(TransactionCandidate(Verdict.STUCK_PREPARE, owner.producer_id, view, 1_500, 9, now_ms, now_ms))
    was = stage.last()
    stage.log.records.append(forged(was, **changes))
    for _ in range(2):
        stage.batch()
    last = stage.log.compacted[was.incident_id]
    assert (last.verdict, last.severity) == (was.verdict, was.severity)


def hijacked(stage: Topic, **changes: Any) -> None:
    """Two records: our incident is over, and another one about the same span is open."""
    last = stage.last()
    other = replace(last, incident_id="f" * 32, sequence=1, status="opened", action=None, **changes)
    stage.log.records.extend([a_resolved(last), other])


def test_a_forged_incident_in_the_place_of_ours_is_replaced_by_what_was_found_here() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.batch(candidate)
    truth = stage.last()
    hijacked(stage, severity="info", expected_outcome="commit", transactional_id="somebody", hidden_records=7)
    for _ in range(3):
        stage.batch(after_ms=2_000)
    (known,) = [one for one in stage.ledger.open_incidents if one.span == truth.span]
    assert (known.severity, known.expected_outcome, known.transactional_id) == ("critical", "abort", "checkout-1")
    assert stage.log.compacted[truth.incident_id].expected_outcome == "abort"
    assert {one.transactional_id for one in stage.shown()} == {"checkout-1"}


def test_an_incident_at_another_offset_takes_no_evidence_away() -> None:
    stage = Topic(policy=replace(AT_ONCE, after_ms=20_000))
    producer_id = stage.hang_and_move_on()
    start = stage.last().txn_start_offset
    assert start is not None
    hijacked(stage, txn_start_offset=start + 1)
    for _ in range(6):
        stage.batch(after_ms=2_000)
    assert len(stage.ledger.ledger.findings) == 1
    for _ in range(3):
        stage.batch(after_ms=61_000)
    assert len(stage.admin.markers) == 1
    assert not stage.is_open(producer_id)


def test_the_history_is_not_read_at_the_offset_of_a_claim() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    row = stage.admin.partitions[stage.partition].producers[candidate.producer_id]
    asked: list[int] = []
    history_of = stage.admin.history_of

    def history(span: SpanStart) -> SpanHistory:
        asked.append(span.start_offset)
        return BEING_READ if len(asked) < 3 else history_of(span)

    stage.admin.history_of = history  # type: ignore[method-assign]
    stage.batch()
    claim = an_event(
        "e" * 32,
        verdict="stray_write",
        severity="warning",
        topic=stage.partition.topic,
        partition=stage.partition.partition,
        topic_id=stage.admin.partitions[stage.partition].topic_id,
        producer_id=candidate.producer_id,
        producer_epoch=0,
        txn_start_offset=row.txn_start_offset + 3,
        transactional_id=None,
    )
    stage.log.records.append(claim)
    stage.batch(candidate)
    for _ in range(4):
        stage.batch(after_ms=1_500)
    assert set(asked) == {row.txn_start_offset}
    (known,) = stage.ledger.open_incidents
    assert (known.txn_start_offset, known.expected_outcome) == (row.txn_start_offset, "abort")
    ours = [event for event in stage.log.records if event.incident_id != claim.incident_id]
    assert {event.txn_start_offset for event in ours} == {row.txn_start_offset}


def test_a_forged_event_about_a_transaction_is_replaced_by_what_was_found() -> None:
    stage = Topic(mode="off")
    owner = stage.admin.begin("checkout-9", stage.partition)
    start_ms = stage.admin.transactions["checkout-9"].start_ms
    stage.batch()
    incident_id = transaction_incident_id("cluster", "checkout-9", owner.producer_id, start_ms, Verdict.LATE)
    place: dict[str, Any] = dict.fromkeys(("topic", "partition", "topic_id", "txn_start_offset", "suggested_command"))
    published = an_event(
        incident_id,
        **place,
        verdict="late",
        severity="info",
        producer_id=owner.producer_id,
        transactional_id="checkout-9",
        open_since_ms=start_ms,
        expected_outcome="commit",
    )
    stage.log.records.append(published)
    view = transaction(
        5, S.ONGOING, stage.partition, producer_id=owner.producer_id, transactional_id="checkout-9", start_ms=start_ms
    ).view
    found = TransactionCandidate(Verdict.LATE, owner.producer_id, view, 5_000, 1, stage.now_ms, 100_000)
    stage.batch(found)
    stage.batch(after_ms=61_000)
    (known,) = [one for one in stage.ledger.open_incidents if one.transactional_id == "checkout-9"]
    assert known.severity != "info"
    assert stage.last().severity == known.severity


def test_a_forged_end_is_followed_at_once_by_what_is_known_here() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.batch(candidate)
    stage.admin.problems[stage.partition] = "its leader is away"
    stage.log.records.append(a_resolved(stage.last()))
    stage.batch()
    assert [(one.sequence, one.status) for one in stage.log.records] == [
        *((1, "opened"), (2, "resolved"), (3, "updated")),
    ]
    assert [one.sequence for one in stage.ledger.open_incidents] == [3]


def test_a_forger_that_goes_on_is_answered_after_growing_pauses() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.batch(candidate)
    (truth,) = stage.log.records
    for _ in range(60):
        if stage.last().severity == truth.severity:
            stage.log.records.append(forged(stage.last(), severity="info"))
        stage.batch(after_ms=2_000)
    answers = [one for one in stage.log.records[1:] if one.severity == truth.severity]
    assert len(answers) == 4, "at once, then after 10, 20 and 40 s"
    stage.batch(after_ms=80_000)
    assert stage.last().severity == truth.severity


def test_an_open_incident_needs_the_barrier_of_its_next_check() -> None:
    """Its end brings a barrier by itself: it is written to a log, or it moves a last stable offset."""
    stage = Topic(mode="off")
    assert stage.ledger.due_ms == NEVER_MS
    stage.batch(stage.hang())
    assert stage.ledger.open_incidents
    assert stage.now_ms < stage.ledger.due_ms <= stage.now_ms + SECOND_LOOK_MS
    stage.batch(after_ms=SECOND_LOOK_MS)
    stage.batch(after_ms=SECOND_LOOK_MS)
    assert stage.now_ms + SECOND_LOOK_MS < stage.ledger.due_ms <= stage.now_ms + LOOK_AGAIN_MS


def test_an_open_incident_is_looked_at_in_each_batch_where_aborts_are_decided() -> None:
    stage = Topic(mode="off")
    stage.ledger.decides = True
    assert stage.ledger.due_ms == NEVER_MS
    stage.batch(stage.hang())
    assert stage.ledger.due_ms == NOW_DUE
