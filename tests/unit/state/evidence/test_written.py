"""No age of 57 years: a client's timestamp counts within what the brokers' clocks allow."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.evidence.written import Written, written
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, Marker
from txnwatch.state.model.transaction import TransactionState as S

NOW_MS = 1_795_000_000_000
HOUR_MS = 3_600_000
AGO_MS = NOW_MS - 5 * HOUR_MS
CASES = {
    # timestamp, not before, is impossible, counts as
    "a right clock": (NOW_MS - HOUR_MS, AGO_MS, False, NOW_MS - HOUR_MS),
    "no bound": (AGO_MS, None, False, AGO_MS),
    "no timestamp": (None, AGO_MS, False, None),
    "a clock that is a little behind": (AGO_MS - 1_000, AGO_MS, False, AGO_MS),
    "0": (0, AGO_MS, True, AGO_MS),
    "0, and nothing shows when": (0, None, True, None),
    "in seconds": (NOW_MS // 1_000, AGO_MS, True, AGO_MS),
    "in seconds, and nothing shows when": (NOW_MS // 1_000, None, True, None),
    "the time of an event of last year": (NOW_MS - 9_000 * HOUR_MS, AGO_MS, True, AGO_MS),
    "in the future": (NOW_MS + HOUR_MS, AGO_MS, False, NOW_MS),
    "a bound of a clock that is ahead": (0, NOW_MS + HOUR_MS, True, NOW_MS),
}


@pytest.mark.parametrize(("stamp_ms", "after_ms", "is_impossible", "at_ms"), CASES.values(), ids=CASES.keys())
def test_the_table(stamp_ms: int | None, after_ms: int | None, at_ms: int | None, *, is_impossible: bool) -> None:
    found = Written(stamp_ms, after_ms)
    assert (found.is_impossible, found.at_ms(NOW_MS)) == (is_impossible, at_ms)


@pytest.fixture
def hang() -> tuple[SpanCandidate, SpanConfirmation]:
    admin = FakeAdmin()
    (partition,) = admin.create_topic("orders")
    admin.begin("checkout-1", partition)
    admin.lose_markers("checkout-1", commit=True)
    ((candidate, proof),) = a_searcher(admin, lambda: admin.now_ms).search([partition]).hanging
    return msgspec.structs.replace(candidate, view=None), replace(proof, history=SpanHistory())


def test_the_last_marker_below_the_data_is_before_it(hang: tuple[SpanCandidate, SpanConfirmation]) -> None:
    candidate, proof = hang
    marker = Marker(5, commit=False, producer_epoch=0, coordinator_epoch=0, timestamp_ms=AGO_MS)
    history = SpanHistory(last_marker=marker)
    assert written(candidate, proof).after_ms is None
    assert written(candidate, replace(proof, history=history)).after_ms == AGO_MS


@pytest.mark.parametrize(
    ("state", "more", "after_ms"), [(S.EMPTY, 0, AGO_MS), (S.EMPTY, 1, None), (S.ONGOING, 0, None)]
)
def test_the_hand_out_of_its_epoch_is_before_it(
    hang: tuple[SpanCandidate, SpanConfirmation], state: S, more: int, after_ms: int | None
) -> None:
    candidate, proof = hang
    epoch = candidate.span.epoch + more
    view = CoordinatorView("checkout-1", 0, 7, state, epoch, 60_000, None, AGO_MS, AGO_MS, coordinator_epoch=0)
    assert written(msgspec.structs.replace(candidate, view=view), proof).after_ms == after_ms
