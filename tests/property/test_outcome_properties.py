"""An expected outcome against the truth: random lives of one transactional id, with markers lost on one partition, and
elections of the coordinators' log that lose records that nobody has read.

The truth is who wrote the data that is open, and which answer that client got, then or later. The outcome must be true
of every owner; `unknown` always is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from support.outcome_life import IdLife, Statement
from txnwatch.state.detection import view
from txnwatch.state.detection import view as lineage
from txnwatch.state.model.transaction import CoordinatorView, EpochUse, Marker, Witness

LIVES = 12_000


OUTCOMES = ("commit", "abort", "none")


def is_false(found: Statement) -> bool:
    if found.outcome not in OUTCOMES:
        return False
    answered = {owner.answer for owner in found.owners if owner is not None and owner.answer is not None}
    is_nobodys = found.outcome in {"commit", "abort"} and not found.is_owed
    return is_nobodys or not answered <= {found.outcome}


def statements(*, loses_records: bool) -> Iterator[tuple[int, Statement]]:
    for seed in range(LIVES):
        found = IdLife(random.Random(seed), loses_records).live()
        if found is not None:
            yield seed, found


@pytest.mark.parametrize("loses_records", [True, False], ids=["elections", "no election"])
def test_a_known_outcome_is_true_for_every_possible_owner(*, loses_records: bool) -> None:
    counts: Counter[str] = Counter()
    for seed, found in statements(loses_records=loses_records):
        assert not is_false(found), (seed, found)
        counts[found.outcome] += 1
    assert min(counts[outcome] for outcome in OUTCOMES) > 50, counts
    assert "unknown" not in counts, "an outcome is not known for a reason"


def inherits_across_elections(follow: Callable[..., CoordinatorView]) -> Callable[..., CoordinatorView]:
    def careless(prior: CoordinatorView | None, view: CoordinatorView, *also: Any, **how: bool) -> CoordinatorView:
        same = replace(prior, coordinator_epoch=view.coordinator_epoch) if prior is not None else None
        return follow(same, view, *also, **how)

    return careless


def witness_with(**changes: Any) -> Callable[[IdLife], Witness | None]:
    witness = IdLife.witness

    def careless(life: IdLife) -> Witness | None:
        found = witness(life)
        if found is None:
            return None
        return replace(found, **{name: value(found) for name, value in changes.items()})

    return careless


def marker_of_the_last_leader(life: IdLife) -> Marker | None:
    """As if every leader of the log were one coordinator."""
    marker = life.last_marker
    return replace(marker, coordinator_epoch=life.leader) if marker is not None else None


CAREFUL = lineage.follow
CARELESS: dict[str, list[tuple[object, str, object]]] = {
    "every epoch is a first one": [(lineage, "use_of", lambda *_: EpochUse.FIRST)],
    "two transactions with markers of one epoch": [(lineage, "at_its_end", lambda *careless: careless[2])],
    "every record continues the one before": [(lineage, "is_same_transaction", lambda *_: True)],
    "a shared epoch is its own": [(lineage, "ITS_OWN", frozenset(EpochUse))],
    "an epoch is returned again as a first one": [(lineage, "_use_after_init", lambda *_: EpochUse.FIRST)],
    "lineage across elections": [
        (lineage, "follow", inherits_across_elections(CAREFUL)),
        (view, "follow", inherits_across_elections(CAREFUL)),
    ],
    "a record of an earlier leader counts": [
        (IdLife, "witness", witness_with(log_epoch=lambda found: found.view.coordinator_epoch))
    ],
    "a marker of an earlier leader may be its own": [(IdLife, "marker", marker_of_the_last_leader)],
    "a span that is older than the leader counts": [
        (IdLife, "witness", witness_with(is_begun_under_it=lambda _: True))
    ],
}


@pytest.mark.parametrize("mutants", CARELESS.values(), ids=CARELESS.keys())
def test_a_careless_rule_is_found_out(mutants: list[tuple[object, str, object]]) -> None:
    with ExitStack() as changed:
        for where, name, careless in mutants:
            changed.enter_context(mock.patch.object(where, name, careless))
        both = zip(statements(loses_records=True), statements(loses_records=False), strict=False)
        assert any(is_false(found) for pair in both for _, found in pair)
