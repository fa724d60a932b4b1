"""An outcome that nobody could be asked about when its incident opened is found again; one that nobody knows is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from support.ledger_world import LedgerWorld
from txnwatch.state.evidence.outcome import DOUBTS
from txnwatch.state.incidents.confirm import CANDIDATES_AT_A_TIME
from txnwatch.state.incidents.found_incidents import OUTCOMES_AT_A_TIME
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import OutcomeDoubt as D
from txnwatch.state.model.ports import BEING_READ, SpanHistory

NO_LEADER = SpanHistory(problem="no leader")
MINUTE_MS = 60_000


@pytest.fixture
def world() -> LedgerWorld:
    return LedgerWorld()


def outcomes(world: LedgerWorld) -> list[tuple[str, str]]:
    return [(event.status, event.expected_outcome) for event in world.topic.published]


def doubts(world: LedgerWorld) -> list[D | None]:
    """The doubts of the published events; each has its text."""
    for event in world.topic.published:
        assert (event.outcome_detail is None) is (event.outcome_doubt is None)
        assert event.outcome_doubt is None or DOUBTS[event.outcome_doubt].means in (event.outcome_detail or "")
    return [event.outcome_doubt for event in world.topic.published]


def the_log_is_not_read(world: LedgerWorld) -> None:
    world.admin.unreadable[world.partition] = NO_LEADER


def it_is_still_being_read(world: LedgerWorld) -> None:
    world.admin.unreadable[world.partition] = BEING_READ


def it_is_written_to_between_the_looks(world: LedgerWorld) -> None:
    (owner,) = world.admin.transactions.values()
    world.admin.before("read_partitions", lambda: None)
    world.admin.before("read_partitions", lambda: appended(world, owner.producer_id))


def appended(world: LedgerWorld, producer_id: int) -> None:
    world.admin.now_ms += 1
    world.admin.write(world.partition, producer_id)


HICCUPS = {
    the_log_is_not_read: D.NOT_READ,
    it_is_still_being_read: D.NOT_READ,
    it_is_written_to_between_the_looks: D.WRITTEN_MEANWHILE,
}


@pytest.mark.parametrize(("hiccup", "doubt"), HICCUPS.items())
def test_an_outcome_that_a_hiccup_kept_back_is_found_at_a_later_look(
    world: LedgerWorld, hiccup: Callable[[LedgerWorld], None], doubt: D
) -> None:
    candidate = world.hang()
    hiccup(world)
    world.batch(candidate)
    assert outcomes(world) == [("opened", "unknown")], "the hang is published at once"
    assert doubts(world) == [doubt]
    world.admin.unreadable.clear()
    world.batch(after_ms=MINUTE_MS)
    assert doubts(world) == [doubt, None]
    assert outcomes(world) == [("opened", "unknown"), ("updated", "abort")]
    assert "--start-offset" in (world.topic.published[-1].suggested_command or "")
    world.batch(after_ms=MINUTE_MS)
    assert len(world.topic.published) == 2


def test_it_is_asked_for_with_growing_pauses_and_at_once_while_it_is_being_read() -> None:
    asked: dict[str, int] = {}
    for problem in (NO_LEADER, BEING_READ):
        other = LedgerWorld()
        candidate = other.hang()
        other.admin.unreadable[other.partition] = problem
        other.batch(candidate)
        other.admin.asked.clear()
        for _ in range(120):
            other.batch()
        asked[problem.problem or ""] = other.admin.asked.count("read_span_histories")
    assert asked == {NO_LEADER.problem: 5, BEING_READ.problem: 120}


def test_it_is_asked_for_at_once_if_our_clock_is_set_back(world: LedgerWorld) -> None:
    candidate = world.hang()
    the_log_is_not_read(world)
    world.batch(candidate)
    world.admin.unreadable.clear()
    world.batch(after_ms=-60 * MINUTE_MS)
    assert outcomes(world) == [("opened", "unknown"), ("updated", "abort")]


def no_id_maps_to_it(world: LedgerWorld) -> SpanCandidate:
    candidate = world.hang()
    world.admin.forget("checkout-1")
    return replace(candidate, view=None)


def the_beginning_is_gone(world: LedgerWorld) -> SpanCandidate:
    candidate = world.hang()
    world.admin.partitions[world.partition].starts[candidate.producer_id] = SpanHistory()
    return candidate


def absorbed(world: LedgerWorld) -> SpanCandidate:
    candidate = world.hang()
    return replace(candidate, span=replace(candidate.span, absorbed=True))


def initialised_anew(world: LedgerWorld) -> SpanCandidate:
    candidate = world.hang()
    world.admin.transactions["checkout-1"].producer_epoch += 1
    return candidate


def an_election_of_the_log(world: LedgerWorld) -> SpanCandidate:
    return replace(world.hang(), log_epoch=1)


SETTLED = {
    no_id_maps_to_it: D.NO_RECORD,
    the_beginning_is_gone: D.DATA_MIXED,
    absorbed: D.DATA_MIXED,
    initialised_anew: D.COORDINATOR_MOVED_ON,
    an_election_of_the_log: D.LOG_ELECTION,
}


@pytest.mark.parametrize(("make", "doubt"), SETTLED.items())
def test_an_outcome_that_cannot_be_known_is_not_requested_again(
    world: LedgerWorld, make: Callable[[LedgerWorld], SpanCandidate], doubt: D
) -> None:
    candidate = make(world)
    world.batch(candidate)
    assert outcomes(world) == [("opened", "unknown")]
    assert doubts(world) == [doubt]
    world.admin.asked.clear()
    for _ in range(5):
        world.batch(candidate, after_ms=MINUTE_MS)
    assert "read_span_histories" not in world.admin.asked
    assert len(world.topic.published) == 1


def test_a_changed_state_causes_another_look(world: LedgerWorld) -> None:
    candidate = world.hang()
    view = candidate.view
    assert view is not None
    world.batch(replace(candidate, view=replace(view, data_epoch=None)))
    assert outcomes(world) == [("opened", "unknown")]
    world.batch(candidate)
    assert outcomes(world) == [("opened", "unknown"), ("updated", "abort")]


def test_after_a_restart_it_is_found_when_the_state_emits_the_span_again(world: LedgerWorld) -> None:
    candidate = world.hang()
    the_log_is_not_read(world)
    world.batch(candidate)
    world.restart()
    world.admin.unreadable.clear()
    world.batch()
    assert outcomes(world) == [("opened", "unknown")]
    world.batch(candidate)
    assert outcomes(world) == [("opened", "unknown"), ("updated", "abort")]


def test_data_that_was_appended_to_has_no_known_outcome(world: LedgerWorld) -> None:
    candidate = world.hang()
    the_log_is_not_read(world)
    world.batch(candidate)
    appended(world, candidate.producer_id)
    world.admin.unreadable.clear()
    world.batch(after_ms=MINUTE_MS)
    world.batch(candidate, after_ms=MINUTE_MS)
    assert outcomes(world) == [("opened", "unknown"), ("updated", "unknown")]
    assert doubts(world) == [D.NOT_READ, D.DATA_MIXED]


def test_an_incident_whose_outcome_was_awaited_says_why_it_cannot_be_known(world: LedgerWorld) -> None:
    candidate = replace(world.hang(), log_epoch=1)
    world.admin.log_epoch = 1
    the_log_is_not_read(world)
    world.batch(candidate)
    world.batch(after_ms=MINUTE_MS)
    assert doubts(world) == [D.NOT_READ], "it is awaited still"
    world.admin.unreadable.clear()
    world.batch(after_ms=MINUTE_MS)
    assert doubts(world) == [D.NOT_READ, D.LOG_ELECTION]
    world.batch(candidate, after_ms=MINUTE_MS)
    assert len(world.topic.published) == 2, "it is said once"
    assert "txnwatch explain --topic orders" in (world.topic.published[-1].suggested_command or "")


def test_data_that_a_live_transaction_absorbs_gets_no_outcome(world: LedgerWorld) -> None:
    candidate = world.hang()
    the_log_is_not_read(world)
    world.batch(candidate)
    world.admin.unreadable.clear()
    world.admin.begin("checkout-1", world.partition)
    world.batch(after_ms=MINUTE_MS)
    assert "abort" not in {event.expected_outcome for event in world.topic.published}


def test_a_fresh_read_that_fails_is_made_again(world: LedgerWorld) -> None:
    candidate = world.hang()
    the_log_is_not_read(world)
    world.batch(candidate)
    world.admin.unreadable.clear()
    world.admin.listing_problems.append("away")
    world.admin.silent.append("coordinator 2: away")
    world.batch(after_ms=MINUTE_MS)
    assert outcomes(world) == [("opened", "unknown")]
    world.admin.silent.clear()
    world.batch(after_ms=MINUTE_MS)
    assert outcomes(world) == [("opened", "unknown"), ("updated", "abort")]


def test_the_history_of_an_ended_span_is_not_requested(world: LedgerWorld) -> None:
    candidate = world.hang()
    the_log_is_not_read(world)
    world.batch(candidate)
    world.batch(world.abort(candidate))
    world.admin.asked.clear()
    world.batch(after_ms=MINUTE_MS)
    assert "read_span_histories" not in world.admin.asked


def test_many_at_once_are_reported_at_once_and_their_outcomes_follow_in_groups(world: LedgerWorld) -> None:
    count = 3 * OUTCOMES_AT_A_TIME
    candidates = []
    for number in range(count):
        name = f"checkout-{number}"
        owner = world.admin.begin(name, world.partition)
        world.admin.lose_markers(name, commit=False)
        candidates.append(world.candidate(owner.producer_id, name))
    the_log_is_not_read(world)
    world.batch(*candidates)
    for _ in range(count // CANDIDATES_AT_A_TIME):
        world.batch(after_ms=0)  # the state need not emit the waiting candidates again
    assert len(outcomes(world)) == count
    world.admin.unreadable.clear()
    for _ in range(count // OUTCOMES_AT_A_TIME):
        world.batch(after_ms=MINUTE_MS)
    assert outcomes(world)[count:] == [("updated", "abort")] * count
