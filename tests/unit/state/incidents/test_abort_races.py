"""Somebody else closes the transaction between the last look and the marker: the report depends on what closed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.abort_stage import AbortStage, a_manual_abort
from support.incidents import an_event
from support.operators import RecordingOperatorsTopic
from support.plans import at_once, run_reads
from txnwatch.state.incidents import by_hand
from txnwatch.state.incidents.abort_protocol import MarkerResult, read_after
from txnwatch.state.incidents.by_hand import ManualTarget
from txnwatch.state.model.incident import Decision, Evidence
from txnwatch.state.model.ports import MarkerSpec

Race = Callable[[AbortStage, int, str], None]
NAME = "checkout-1"


def a_colleague(stage: AbortStage, producer_id: int, kind: str) -> None:
    """Whose marker has the same epochs; ours lands on nothing and is taken."""
    assert stage.admin.mark(MarkerSpec(stage.partition, producer_id, 0, 0, kind == Decision.COMMIT)) is None


def the_next_transaction(stage: AbortStage, _: int, kind: str) -> None:
    """Takes the data in and ends; ours is refused, as its epoch is older."""
    stage.admin.begin(NAME, stage.partition)
    stage.admin.end(NAME, commit=kind == Decision.COMMIT)


# Who closes it first, what the broker answers to us then, the offset of the marker, and who wrote it.
RACES = [
    pytest.param(a_colleague, None, 1, "administrator", id="a colleague"),
    pytest.param(the_next_transaction, "INVALID_PRODUCER_EPOCH", 2, "next_transaction", id="the next transaction"),
]


class ByHand:
    """The abort by hand on a stage, and what it publishes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
        self.stage, self.topic = AbortStage(mode="off"), RecordingOperatorsTopic()
        self.published = self.topic.published
        self.producer_id = self.stage.hang_and_move_on(NAME)
        self.incident = replace(self.stage.last(), expected_outcome=asked, action=None)
        ((_, found),) = self.stage.ledger.ledger.book.proven()
        self.evidence = replace(found, outcome=asked)
        monkeypatch.setattr(by_hand, "read_anew", lambda *found: at_once(found))
        target = ManualTarget(
            self.stage.partition, 0, None, is_commit=asked == Decision.COMMIT, may_lose=False, may_be_unknown=True
        )
        self.abort = a_manual_abort(self.stage.admin, target)

    def act(self) -> MarkerResult:
        came_to = self.abort.end(self.incident, self.evidence, self.topic)
        assert isinstance(came_to, MarkerResult)
        return came_to

    @property
    def end(self) -> tuple[str, str, int | None]:
        resolution = self.published[-1].resolution
        assert resolution is not None
        return resolution.how, resolution.by, resolution.marker_offset

    @property
    def result(self) -> str:
        (result,) = {event.action.result for event in self.published[1:] if event.action is not None}
        return str(result)


@pytest.mark.parametrize("asked", [Decision.COMMIT, Decision.ABORT])
@pytest.mark.parametrize(("race", "answer", "at", "who"), RACES)
def test_by_hand_a_marker_of_the_other_kind_is_never_reported_as_verified(
    monkeypatch: pytest.MonkeyPatch, race: Race, answer: str | None, at: int, who: str, asked: str
) -> None:
    other, kind, became = (
        (Decision.ABORT, "an ABORT", "aborted")
        if asked == Decision.COMMIT
        else (Decision.COMMIT, "a COMMIT", "committed")
    )
    by_hand = ByHand(monkeypatch, asked)
    by_hand.stage.admin.before("write_marker", lambda: race(by_hand.stage, by_hand.producer_id, other))
    came_to = by_hand.act()
    detail = f"{kind} marker at offset {at} closed it first: its data is {became}"
    assert came_to.result == by_hand.result == "failed"
    assert came_to.detail == (f"{detail}; the broker answered {answer}" if answer is not None else detail)
    assert [event.status for event in by_hand.published] == ["opened", "updated", "resolved"]
    assert by_hand.end == (became if who != "next_transaction" else "absorbed", who, at)


@pytest.mark.parametrize("asked", [Decision.COMMIT, Decision.ABORT])
@pytest.mark.parametrize(("race", "answer", "at", "who"), RACES)
def test_an_abort_by_hand_is_verified_by_a_marker_of_the_same_kind_from_any_writer(
    monkeypatch: pytest.MonkeyPatch, race: Race, answer: str | None, at: int, who: str, asked: str
) -> None:
    by_hand = ByHand(monkeypatch, asked)
    by_hand.stage.admin.before("write_marker", lambda: race(by_hand.stage, by_hand.producer_id, asked))
    came_to = by_hand.act()
    assert came_to.result == by_hand.result == "verified"
    assert came_to.detail == (f"the broker answered {answer}" if answer is not None else None)
    became = "committed" if asked == Decision.COMMIT else "aborted"
    assert by_hand.end == (became if who != "next_transaction" else "absorbed", who, at)


@pytest.mark.parametrize("asked", [Decision.COMMIT, Decision.ABORT])
def test_by_hand_a_marker_that_cannot_be_read_leaves_it_unknown(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    by_hand = ByHand(monkeypatch, asked)
    by_hand.stage.admin.before(
        "closing_marker", by_hand.stage.admin.partitions[by_hand.stage.partition].all_markers.clear
    )
    came_to = by_hand.act()
    assert came_to.result == by_hand.result == "unknown"
    assert "could not be read" in (came_to.detail or "")
    assert by_hand.end == ("no_longer_open", "unknown", None)


@pytest.mark.parametrize(("race", "answer", "at", "who"), RACES)
@pytest.mark.parametrize("kind", [Decision.COMMIT, Decision.ABORT])
def test_the_automatic_abort_reports_failed_for_data_that_was_committed(
    race: Race, answer: str | None, at: int, who: str, kind: str
) -> None:
    stage = AbortStage()
    producer_id = stage.hang_and_move_on(NAME)
    stage.admin.before("write_marker", lambda: race(stage, producer_id, kind))
    stage.batch()
    assert stage.actions == [
        ("abort", None, None),
        ("abort", None, "failed" if kind == Decision.COMMIT else "verified"),
    ]
    action = stage.last().action
    assert action is not None
    found = (
        [f"a COMMIT marker at offset {at} closed it first: its data is committed"] if kind == Decision.COMMIT else []
    )
    answered = [f"the broker answered {answer}"] if answer is not None else []
    assert action.detail == ("; ".join([*found, *answered]) or None)
    assert stage.abort.counts["circuit breaker opened"] == (kind == Decision.COMMIT), f"by the {who}"


@pytest.mark.parametrize(("race", "answer", "at", "who"), RACES)
def test_after_a_restart_what_closed_it_decides_too(race: Race, answer: str | None, at: int, who: str) -> None:
    stage = AbortStage()
    producer_id = stage.hang_and_move_on(NAME)

    def crash() -> None:
        race(stage, producer_id, Decision.COMMIT)
        raise KeyboardInterrupt

    stage.admin.before("write_marker", crash)
    with pytest.raises(KeyboardInterrupt):
        stage.batch()
    stage.restart()
    stage.abort.recover()
    assert stage.actions[-1] == ("abort", None, "failed"), (answer, who)
    action = stage.last().action
    assert action is not None
    assert action.detail.endswith(f"; a COMMIT marker at offset {at} closed it first: its data is committed")


def test_the_event_ahead_has_the_end_of_the_fresh_read_which_is_where_the_marker_is_looked_for() -> None:
    stage = AbortStage()
    stage.hang_and_move_on(NAME)
    assert stage.last().evidence.end_before == 1
    stage.admin.plain(stage.partition, 2_000_000)
    stage.batch()
    assert stage.actions[-1] == ("abort", None, "verified")
    assert stage.last().evidence.end_before == 2_000_001


@pytest.mark.parametrize(("is_moved", "result"), [(True, "verified"), (False, "unknown")])
def test_under_another_leader_an_end_of_the_one_before_proves_nothing(is_moved: bool, result: str) -> None:  # noqa: FBT001
    stage = AbortStage()
    owner = stage.admin.begin(NAME, stage.partition)
    stage.admin.end(NAME, commit=False)
    at = stage.admin.partitions[stage.partition]
    stage.admin.plain(stage.partition, 8)
    if is_moved:
        stage.admin.move_leader(stage.partition, 2)
    incident = an_event(
        topic="orders",
        partition=0,
        topic_id=at.topic_id,
        producer_id=owner.producer_id,
        txn_start_offset=0,
        evidence=Evidence(complete=True, end_before=10, leader_epoch=0),
    )
    assert run_reads(read_after(incident, commit=False), stage.admin).result == result
