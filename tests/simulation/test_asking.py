"""Without the log, asking the coordinators proves no false hang and misses none, whatever happens between answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

import pytest

from simulation.asking import Confirm
from simulation.asking import ask as ask_world
from simulation.run import USUAL
from support.seeds import in_proportion
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.screening import screen
from txnwatch.state.incidents import confirm
from txnwatch.state.incidents.wanted import DescribeTransactions, ListTransactions, Plan, ReadPartitions, ask
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ports import TransactionListing
from txnwatch.state.model.values import TimestampMs

FIRST_SEED = int(os.environ.get("TXNWATCH_FIRST_SEED", "0"))
SEEDS = in_proportion(100)
_MOST_SEEDS = 600


def test_no_answer_is_false_and_no_hang_is_missed() -> None:
    confirmed = refuted = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        asked = ask_world(seed, USUAL)
        assert not asked.problems, f"seed {seed}: {asked.problems[0]}"
        confirmed, refuted = confirmed + asked.confirmed, refuted + asked.refuted
    assert confirmed > SEEDS / 4
    assert refuted > 2.5 * SEEDS


def test_without_faults_nothing_is_confirmed() -> None:
    assert not any(ask_world(seed, replace(USUAL, faults=frozenset())).confirmed for seed in range(in_proportion(40)))


Pairs = Plan[list[tuple[SpanCandidate, SpanConfirmation]]]


def the_first_answer_counts(asked: Sequence[SpanCandidate], now_ms: TimestampMs) -> Pairs:
    """What no coordinator owns hangs, without another read of its partition."""
    listing = yield from ask(ListTransactions([span.producer_id for span in asked]))
    names = sorted({row.transactional_id for row in listing.transactions})
    owners = yield from ask(DescribeTransactions(names))
    rows = {}
    for span in screen(asked, owners, listing, now_ms).candidates:
        rows[span] = (yield from ask(ReadPartitions([span.partition])))[span.partition]
    return [
        (span, SpanConfirmation(Answer.CONFIRMED, reading=read, producer=read.open_transaction(span.producer_id)))
        for span, read in rows.items()
        if read.open_transaction(span.producer_id) is not None
    ]


def any_broker_will_do(asked: Sequence[SpanCandidate], now_ms: TimestampMs) -> Pairs:
    """An id that the coordinators that answer do not have has no owner."""
    whole = TransactionListing.__init__

    def blind(listing: TransactionListing, transactions: object, *_: object, **__: object) -> None:
        whole(listing, transactions)  # type: ignore[arg-type]

    with mock.patch.object(TransactionListing, "__init__", blind):
        return (yield from confirm.confirm_asked(asked, now_ms))


@pytest.mark.parametrize(
    ("mutant", "first"),
    [(the_first_answer_counts, 425), (any_broker_will_do, 8)],
    ids=["the_first_answer_counts", "any_broker_will_do"],
)
def test_a_planted_bug_is_found(mutant: Confirm, first: int) -> None:
    seeds = range(first, first + _MOST_SEEDS)
    found = next((seed for seed in seeds if ask_world(seed, USUAL, mutant).problems), None)
    assert found is not None, f"went through {_MOST_SEEDS} seeds: {mutant.__doc__}"
    assert not ask_world(found, USUAL).problems, "the seed fails without the planted bug, too"
