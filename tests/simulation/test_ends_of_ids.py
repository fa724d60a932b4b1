"""What `explain` says about past ends and their markers is never false; each planted bug is found."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from simulation.ends_of_ids import Ended, Past, run_ends
from simulation.failed_appends import FAILED_APPEND
from support.seeds import in_proportion
from txnwatch.state.evidence.past_ends import EndCause, PastEnd, ended_with, past_ends
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.values import TopicPartition

FIRST_SEED = int(os.environ.get("TXNWATCH_FIRST_SEED", "0"))
SEEDS, _MOST_SEEDS = in_proportion(120), 300


def test_what_is_said_about_past_ends_is_true() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        outcome = run_ends(seed)
        assert not outcome.problems, (seed, outcome.problems[0])
        seen += outcome.seen
    assert seen[FAILED_APPEND] > SEEDS
    assert seen["marker of an end"] > 3 * SEEDS
    assert {
        f"{EndCause.CLIENT_OR_TIMEOUT} by the timeout",
        f"{EndCause.TIMEOUT_OR_FENCE} by an InitProducerId",
    } <= seen.keys()


def the_first_decision_counts(records: Sequence[CoordinatorView | None]) -> list[PastEnd]:
    """A Prepare* behind another one with the same start is another end."""
    kept: list[CoordinatorView | None] = []
    for record in records:
        before = kept[-1] if kept else None
        is_another = (
            before is not None
            and record is not None
            and before.state.is_prepare
            and record.state.outcome is not None
            and before.state.outcome != record.state.outcome
        )
        if not is_another:
            kept.append(record)
    return past_ends(kept)


def who_goes_on_has_ended_it(records: Sequence[CoordinatorView | None]) -> list[PastEnd]:
    """A next transaction under the raised epoch proves that the client has aborted."""
    begun = {one.producer_epoch for one in records if one is not None and one.state is TransactionState.ONGOING}
    return [
        end._replace(cause=EndCause.CLIENT)
        if end.cause is EndCause.CLIENT_OR_TIMEOUT and end.decided.producer_epoch in begun
        else end
        for end in past_ends(records)
    ]


def an_abort_of_nothing_is_an_end(records: Sequence[CoordinatorView | None]) -> list[PastEnd]:
    """A Prepare* without participants ends a transaction."""
    held = frozenset({TopicPartition("orders", 0)})
    return past_ends(
        [replace(one, participants=held) if one is not None and one.state.is_prepare else one for one in records]
    )


def each_end_has_one_marker(ends: Sequence[PastEnd], marker: Marker, earlier: Sequence[Marker]) -> PastEnd | None:
    """A marker that is there a second time belongs to no end."""
    end = ended_with(ends, marker, earlier)
    before = [ended_with(ends, one, earlier[:at]) for at, one in enumerate(earlier)]
    return None if end in before else end


def all_brokers_have_one_clock(ends: Sequence[PastEnd], marker: Marker, earlier: Sequence[Marker]) -> PastEnd | None:
    """A marker is written between the decision and Complete*, by the clock of another broker, too."""
    end = ended_with(ends, marker, earlier)
    if end is None or marker.timestamp_ms < end.decided.record_timestamp_ms:
        return None
    return end if end.complete_ms is None or marker.timestamp_ms <= end.complete_ms else None


BUGS: tuple[tuple[Past, Ended], ...] = (
    (the_first_decision_counts, ended_with),
    (an_abort_of_nothing_is_an_end, ended_with),
    (who_goes_on_has_ended_it, ended_with),
    (past_ends, each_end_has_one_marker),
    (past_ends, all_brokers_have_one_clock),
)


@pytest.mark.parametrize(("past", "ended"), BUGS)
def test_a_planted_bug_is_found(past: Past, ended: Ended) -> None:
    found = next((seed for seed in range(_MOST_SEEDS) if run_ends(seed, past, ended).problems), None)
    assert found is not None, f"not found in {_MOST_SEEDS} seeds: {(past.__doc__, ended.__doc__)}"
    assert not run_ends(found).problems
