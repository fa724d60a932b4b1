"""A field that no strategy draws always has its default: the properties then say nothing about it."""

from __future__ import annotations

import contextlib
from typing import get_args, get_type_hints

import pytest
from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from support import strategies as drawn
from txnwatch.state.detection.bucket_state import SharedState
from txnwatch.state.detection.reading import Reading
from txnwatch.state.model import facts
from txnwatch.state.model.transaction import CoordinatorView, ProducerState, Span

FACTS: dict[type[object], st.SearchStrategy[object]] = {
    facts.ProducerSeen: drawn.producers_seen(),
    facts.TransactionSeen: drawn.transactions_seen,
    facts.TransactionalIdGone: drawn.ids_gone,
    facts.PartitionNotice: drawn.notices,
    facts.CensusTaken: drawn.censuses,
    facts.OpenDescribed: drawn.open_described,
    facts.LastStable: drawn.last_stable_offsets,
    facts.Throttled: drawn.throttle_times,
    facts.CompletionTimes: drawn.completion_times,
    facts.DataRead: drawn.data_read,
    facts.LogRead: drawn.log_reads,
    facts.Barrier: drawn.barriers,
}
STATE: dict[type[object], st.SearchStrategy[object]] = {
    Span: drawn.spans,
    CoordinatorView: drawn.views,
    ProducerState: drawn.producers,
    SharedState: drawn.buckets,
    Reading: drawn.data_readings | drawn.log_readings,
    facts.CensusListing: drawn.census_listings,
    facts.Joined: drawn.joins,
}
DRAWN = FACTS | STATE


def test_every_fact_is_drawn() -> None:
    assert set(FACTS) == set(get_args(facts.Fact))


@pytest.mark.parametrize(("model", "values"), DRAWN.items(), ids=[model.__name__ for model in DRAWN])
def test_every_field_has_more_than_one_value(model: type[object], values: st.SearchStrategy[object]) -> None:
    found: dict[str, set[str]] = {name: set() for name in get_type_hints(model)}

    def has_found_all(value: object) -> bool:
        for name, different in found.items():
            different.add(repr(getattr(value, name)))
        return all(len(different) > 1 for different in found.values())

    with contextlib.suppress(NoSuchExample):
        find(values, has_found_all, settings=settings(max_examples=200, phases=[Phase.generate], database=None))
    assert [name for name, different in found.items() if len(different) < 2] == []
