"""If there are more candidates than one batch confirms, each is confirmed in time, in any order, with any results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from support.ledger_world import HOUR_MS, LedgerWorld
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.incidents.confirm import CANDIDATES_AT_A_TIME, CandidateQueue, ConfirmationQueues
from txnwatch.state.model.findings import CoverInDoubt, Finding, SpanCandidate, TransactionCandidate
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import Verdict

MANY = 2 * CANDIDATES_AT_A_TIME + 100


@dataclass(frozen=True)
class Queued:
    """A candidate; the time at which it was emitted is not part of its identity."""

    name: int
    at_ms: int = 0


def a_line() -> CandidateQueue[Queued]:
    return CandidateQueue(lambda candidate: candidate.name)


def everybody(at_ms: int = 0) -> list[Queued]:
    return [Queued(name, at_ms) for name in range(MANY)]


def test_candidates_that_fit_have_their_latest_version() -> None:
    line = a_line()
    assert line.next(everybody()[:3], 0) == [Queued(0), Queued(1), Queued(2)]
    assert line.next([Queued(1, 7)], 7) == [Queued(1, 7)]


def test_those_that_were_left_out_are_next_and_then_the_others_again() -> None:
    line = a_line()
    rounds = [{one.name for one in line.next(everybody(), at_ms)} for at_ms in range(20)]
    assert {len(one_round) for one_round in rounds} == {CANDIDATES_AT_A_TIME}
    for three in zip(rounds, rounds[1:], rounds[2:], strict=False):
        assert set().union(*three) == set(range(MANY)), "three calls confirm everybody once"


def test_a_waiting_candidate_need_not_be_emitted_again() -> None:
    line = a_line()
    rounds = [line.next(everybody(), 0), line.next([], 500), line.next([], 1_000)]
    assert [one for one_round in rounds for one in one_round] == everybody()
    assert line.next([], 1_500) == []


def test_a_candidate_that_has_ended_leaves_the_queue() -> None:
    line = a_line()
    line.next(everybody(), 0)
    line.drop(MANY - 1)
    assert [*line.next([], 0), *line.next([], 0)] == everybody()[CANDIDATES_AT_A_TIME:-1]


def test_a_later_candidate_is_later_in_the_queue() -> None:
    line = a_line()
    line.next(everybody(), 0)
    late = [Queued(-1), *everybody()]
    assert Queued(-1) not in line.next(late, 1)
    assert Queued(-1) in line.next(late, 2)


def test_a_candidate_that_is_no_longer_emitted_is_forgotten() -> None:
    line = a_line()
    line.next(everybody(), 0)
    line.next([], 2 * HOUR_MS)
    assert line.waiting == 0


@pytest.mark.parametrize("line", ["spans", "held", "transactions"])
def test_each_kind_has_a_line_of_its_own(line: str) -> None:
    rounds = ConfirmationQueues()
    others = {name: vars(rounds)[name] for name in vars(rounds) if name != line}
    assert vars(rounds)[line] not in others.values()


def a_span(world: LedgerWorld, number: int) -> SpanCandidate:
    """What hangs under an id whose coordinator does not answer: it can be neither confirmed nor refuted."""
    name = f"checkout-{number}"
    owner = world.admin.begin(name, world.partition)
    world.admin.lose_markers(name, commit=False)
    world.admin.problems[name] = "NOT_COORDINATOR"
    span = world.candidate(owner.producer_id, name)
    return replace(span, view=replace(span.view, transactional_id=name)) if span.view is not None else span


def a_late(world: LedgerWorld, number: int) -> TransactionCandidate:
    name = f"checkout-{number}"
    owner = world.admin.begin(name, world.partition)
    world.admin.problems[name] = "NOT_COORDINATOR"
    view = CoordinatorView(
        name, 0, number, S.ONGOING, 0, 60_000, owner.start_ms, 0, 0, participants=frozenset({world.partition})
    )
    return TransactionCandidate(Verdict.LATE, owner.producer_id, view, 1_000, 2, world.now_ms, world.now_ms)


CANDIDATES: dict[str, Callable[[LedgerWorld, int], Finding]] = {
    "spans": a_span,
    "held": lambda world, number: CoverInDoubt(a_span(world, number)),
    "transactions": a_late,
}


@pytest.mark.parametrize("a_finding", CANDIDATES.values(), ids=CANDIDATES.keys())
def test_candidates_that_cannot_be_confirmed_do_not_keep_others_from_it(
    a_finding: Callable[[LedgerWorld, int], Finding],
) -> None:
    world = LedgerWorld()
    findings = [a_finding(world, number) for number in range(CANDIDATES_AT_A_TIME + 1)]
    world.admin.problems.pop(f"checkout-{CANDIDATES_AT_A_TIME}")  # the last one could be
    world.batch(*findings)
    assert world.published() == []
    world.batch()
    world.batch(*findings)
    assert [status for _, _, status in world.published()] == ["opened"]
    assert any(count.endswith(Answer.CONFIRMED) for count in world.ledger.counts)
