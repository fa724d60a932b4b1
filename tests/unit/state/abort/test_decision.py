"""The table of refusals: every row refuses, each at its place, and only what passes all of them is a marker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from support.incidents import OPEN_SINCE_MS
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.abort.rules import REFUSALS, AbortSpec, Case, Refused, Usage, decide_abort, objection
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.outcome import Doubt
from txnwatch.state.evidence.proven_hang import ProvenHang
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import OutcomeDoubt, Refusal
from txnwatch.state.model.ports import ActiveProducer, MarkerSpec, PartitionReading
from txnwatch.state.model.transaction import CoordinatorView, DescribedTransaction, Span, Witness
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import Problem, TopicPartition
from txnwatch.state.model.verdicts import Verdict

PARTITION = TopicPartition("orders", 3)
NOW_MS = OPEN_SINCE_MS + 1_000_000
ROW = ActiveProducer(4711, 2, 20, OPEN_SINCE_MS, None, 99)
MOVED_ON = DescribedTransaction("payments-ü", 1, S.EMPTY, 4711, 3, 60_000)
CONFIRMED = SpanConfirmation(Answer.CONFIRMED, reading=PartitionReading(PARTITION), producer=ROW, description=MOVED_ON)
VIEW = CoordinatorView("payments-ü", 1, 77, S.COMPLETE_ABORT, 2, 60_000, OPEN_SINCE_MS, OPEN_SINCE_MS, OPEN_SINCE_MS)
SPAN = Span("Zm9v", 99, 2, 2, 120, OPEN_SINCE_MS, OPEN_SINCE_MS, 7)
CANDIDATE = SpanCandidate(Verdict.HANGING, 4711, PARTITION, SPAN, VIEW, 7, 8, 0, 0)
EVIDENCE = ProvenHang(CANDIDATE, ROW, "abort", Witness(VIEW, log_epoch=0), since_ms=OPEN_SINCE_MS)
CASE = Case(EVIDENCE, CONFIRMED, AbortPolicy(), Usage(), NOW_MS)
NAMELESS = msgspec.structs.replace(CANDIDATE, view=None)


def with_outcome(outcome: str) -> Case:
    return replace(CASE, evidence=replace(EVIDENCE, outcome=outcome))


def nameless(case: Case) -> Case:
    """Nobody knows whose it is."""
    nobody = replace(EVIDENCE, candidate=NAMELESS, witness=None)
    return replace(case, evidence=nobody, found=replace(CONFIRMED, description=None))


def with_policy(**changes: Any) -> Case:
    return replace(CASE, policy=replace(CASE.policy, **changes))


def with_usage(**changes: Any) -> Case:
    return replace(CASE, usage=Usage(**changes))


def with_found(**changes: Any) -> Case:
    return replace(CASE, found=replace(CONFIRMED, **changes))


def with_row(**changes: Any) -> Case:
    return with_found(producer=ROW._replace(**changes))


def with_owner(**changes: Any) -> Case:
    return with_found(description=msgspec.structs.replace(MOVED_ON, **changes))


def refuted(why: str, owner: DescribedTransaction | None = None) -> Case:
    return replace(CASE, found=SpanConfirmation(Answer.REFUTED, why, description=owner))


LIVE = msgspec.structs.replace(MOVED_ON, state=S.ONGOING, partitions=frozenset({PARTITION}))
OTHERS = msgspec.structs.replace(MOVED_ON, transactional_id="x-1")
REFUSED: dict[str, tuple[Case, Refusal]] = {
    "published by another, and not found here": (replace(CASE, evidence=None), Refusal.NOT_PROVEN_HERE),
    "committed": (with_outcome("commit"), Refusal.OUTCOME_WAS_COMMIT),
    "unknown": (with_outcome("unknown"), Refusal.OUTCOME_UNKNOWN),
    "an unknown value": (with_outcome("maybe"), Refusal.OUTCOME_UNKNOWN),
    "a commit of an abort": (with_policy(commit=True), Refusal.COMMIT_NOT_PROVEN),
    "a commit of what is unknown": (
        replace(with_outcome("unknown"), policy=AbortPolicy(commit=True)),
        Refusal.OUTCOME_UNKNOWN,
    ),
    "topic on the deny list": (with_policy(deny_topics="ord.*"), Refusal.TOPIC_DENIED),
    "topic on both lists": (with_policy(topics="orders", deny_topics="orders"), Refusal.TOPIC_DENIED),
    "topic not on the allow list": (with_policy(topics="order"), Refusal.TOPIC_DENIED),
    "id on the deny list": (with_policy(deny_id_prefixes=("a", "pay")), Refusal.TRANSACTIONAL_ID_DENIED),
    "id not on the allow list": (with_policy(id_prefixes=("orders-",)), Refusal.TRANSACTIONAL_ID_DENIED),
    "no id, an allow list": (nameless(with_policy(id_prefixes=("",))), Refusal.TRANSACTIONAL_ID_DENIED),
    "no id, a deny list": (nameless(with_policy(deny_id_prefixes=("x",))), Refusal.TRANSACTIONAL_ID_DENIED),
    "the coordinator names another id, on the deny list": (
        replace(with_policy(deny_id_prefixes=("x",)), found=replace(CONFIRMED, description=OTHERS)),
        Refusal.TRANSACTIONAL_ID_DENIED,
    ),
    "the coordinator names another id, not on the allow list": (
        replace(with_policy(id_prefixes=("pay",)), found=replace(CONFIRMED, description=OTHERS)),
        Refusal.TRANSACTIONAL_ID_DENIED,
    ),
    "one millisecond too early": (
        replace(CASE, now_ms=EVIDENCE.since_ms + CASE.policy.after_ms - 1),
        Refusal.TOO_EARLY,
    ),
    "the breaker is open": (with_usage(tripped="it came out otherwise"), Refusal.BREAKER_OPEN),
    "too many at once": (with_usage(open_hanging=21), Refusal.BREAKER_OPEN),
    "the budget is used up": (with_usage(markers_last_hour=10), Refusal.BUDGET_EXHAUSTED),
    "a budget of nothing": (with_policy(budget_per_hour=0), Refusal.BUDGET_EXHAUSTED),
    "nothing read": (replace(CASE, found=None), Refusal.EVIDENCE_INCOMPLETE),
    "not all ids listed": (with_found(unlisted=Problem("broker 2 is away")), Refusal.EVIDENCE_INCOMPLETE),
    "not all read": (with_found(answer=Answer.UNKNOWN, why="broker 2 is away"), Refusal.EVIDENCE_INCOMPLETE),
    "live and holding": (refuted("it is Ongoing", LIVE), Refusal.STILL_OWNED),
    "still writing its markers": (with_owner(state=S.PREPARE_ABORT), Refusal.STILL_OWNED),
    "being fenced": (with_owner(state=S.PREPARE_EPOCH_FENCE), Refusal.STILL_OWNED),
    "nothing open any more": (refuted("nothing is open"), Refusal.ALREADY_OVER),
    "another start": (with_row(txn_start_offset=100), Refusal.CHANGED_SINCE_OPENED),
    "another epoch": (with_row(producer_epoch=3), Refusal.CHANGED_SINCE_OPENED),
    "written to": (with_row(last_sequence=21), Refusal.CHANGED_SINCE_OPENED),
    "written to, with the sequence of before": (
        with_row(last_timestamp_ms=OPEN_SINCE_MS + 1),
        Refusal.CHANGED_SINCE_OPENED,
    ),
    "no row": (with_found(producer=None), Refusal.CHANGED_SINCE_OPENED),
    "idle under the same epoch": (with_owner(producer_epoch=2), Refusal.EPOCH_MAY_BE_REUSED),
    "complete under the same epoch": (
        with_owner(producer_epoch=2, state=S.COMPLETE_ABORT),
        Refusal.EPOCH_MAY_BE_REUSED,
    ),
    "live elsewhere under the same epoch": (
        with_owner(producer_epoch=2, state=S.ONGOING),
        Refusal.EPOCH_MAY_BE_REUSED,
    ),
    "the id has no epoch yet": (with_owner(producer_epoch=None), Refusal.EPOCH_MAY_BE_REUSED),
    "the coordinator is behind the partition": (with_owner(producer_epoch=1), Refusal.EPOCH_MAY_BE_REUSED),
}


@pytest.mark.parametrize(("case", "refusal"), REFUSED.values(), ids=REFUSED.keys())
def test_a_case_is_refused_for_its_reason(case: Case, refusal: Refusal) -> None:
    decision = decide_abort(case)
    assert isinstance(decision, Refused)
    assert decision.refusal is refusal
    assert decision.detail


@pytest.mark.parametrize(
    ("doubt", "why"),
    [
        (Doubt(OutcomeDoubt.ID_EXPIRED), "the transactional id has expired"),
        (Doubt(OutcomeDoubt.LOG_ELECTION, "leader epoch 3 then, 4 now"), "(leader epoch 3 then, 4 now)"),
        (None, "the data may have been committed"),
    ],
)
def test_a_refusal_for_an_unknown_outcome_says_why_it_is_unknown(doubt: Doubt | None, why: str) -> None:
    decision = decide_abort(replace(CASE, evidence=replace(EVIDENCE, outcome="unknown", doubt=doubt)))
    assert isinstance(decision, Refused)
    assert why in decision.detail


def test_a_refusal_for_changed_data_names_what_has_changed() -> None:
    decision = decide_abort(with_row(last_timestamp_ms=OPEN_SINCE_MS + 1))
    assert isinstance(decision, Refused)
    assert f"last sequence 20 and last timestamp {OPEN_SINCE_MS} when its outcome was found" in decision.detail
    assert decision.detail.endswith(f"last sequence 20 and last timestamp {OPEN_SINCE_MS + 1} now")


def test_every_refusal_is_tested_but_the_one_only_a_broker_can_make() -> None:
    assert {refusal for _, refusal in REFUSED.values()} == set(Refusal) - {Refusal.NOT_AUTHORIZED}
    assert [rule.refusal for rule in REFUSALS] == list(dict.fromkeys(rule.refusal for rule in REFUSALS))
    assert {rule.refusal for rule in REFUSALS} == set(Refusal)


ALLOWED: dict[str, Case] = {
    "as it is": CASE,
    "no transaction ever owned it": with_outcome("none"),
    "superseded by another producer id": with_owner(producer_id=9, producer_epoch=0),
    "the id is gone": with_found(description=None),
    "nobody knows whose it is, and there are no lists": nameless(CASE),
    "live under a newer epoch, elsewhere": with_owner(state=S.ONGOING),
    "on the allow lists": with_policy(
        topics="orders|x", id_prefixes=("pay",), deny_id_prefixes=("x",), deny_topics="x"
    ),
    "at its time": replace(CASE, now_ms=EVIDENCE.since_ms + CASE.policy.after_ms),
    "as many as are allowed": with_usage(open_hanging=20, markers_last_hour=9),
    "by hand, without limits": replace(
        with_policy(budget_per_hour=None, breaker_incidents=None), usage=Usage(1_000, 1_000)
    ),
    "by hand, unknown": replace(
        with_outcome("unknown"), policy=AbortPolicy(outcomes=frozenset({"abort", "none", "unknown"}))
    ),
}


@pytest.mark.parametrize("case", ALLOWED.values(), ids=ALLOWED.keys())
def test_a_case_that_passes_every_row_gets_an_abort_marker_with_the_leaders_epochs(case: Case) -> None:
    assert decide_abort(case) == AbortSpec(MarkerSpec(PARTITION, 4711, 2, 0, commit=False))


@pytest.mark.parametrize(("listed", "sent"), [(None, 0), (0, 0), (7, 7)])
def test_the_coordinator_epoch_is_the_leaders_and_never_higher(listed: int | None, sent: int) -> None:
    decision = decide_abort(with_row(coordinator_epoch=listed))
    assert isinstance(decision, AbortSpec)
    assert decision.marker.coordinator_epoch == sent


@pytest.mark.parametrize("outcome", ["commit", "unknown"])
def test_a_proven_commit_can_be_completed_by_hand_and_one_that_a_person_knows(outcome: str) -> None:
    case = replace(with_outcome(outcome), policy=AbortPolicy(commit=True, outcomes=frozenset({"unknown"})))
    decision = decide_abort(case)
    assert isinstance(decision, AbortSpec)
    assert decision.marker.commit


@pytest.mark.parametrize("make", [lambda case: replace(case, found=None)], ids=["unread"])
def test_without_a_reading_there_is_an_objection_or_nothing_yet(make: Callable[[Case], Case]) -> None:
    assert objection(make(CASE)) is None
    found = objection(make(with_outcome("commit")))
    assert found is not None
    assert found.refusal is Refusal.OUTCOME_WAS_COMMIT
