"""find-hanging on a topic into which another cluster's topic is copied: nothing is proven there by absence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fake_admin import FakeAdmin
from support.one_look import a_searcher
from txnwatch.state.evidence.screening import Search
from txnwatch.state.model.verdicts import Reason
from txnwatch.streaming.search import searcher as searching

NAME = "checkout-1"


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    """A cluster in memory with the partitions orders-0 and orders-1."""
    monkeypatch.setattr(searching.time, "sleep", lambda _: None)
    found = FakeAdmin()
    found.create_topic("orders", 2)
    return found


def searched(admin: FakeAdmin, foreign_topics: str | None) -> Search:
    searcher = a_searcher(admin, lambda: admin.now_ms)
    searcher.foreign_topics = foreign_topics
    return searcher.search(list(admin.partitions))


def copied(admin: FakeAdmin) -> None:
    admin.write(next(iter(admin.partitions)), 777)


def not_started(admin: FakeAdmin) -> None:
    admin.write(next(iter(admin.partitions)), admin.init(NAME).producer_id)


def on_another_partition(admin: FakeAdmin) -> None:
    first, second = admin.partitions
    admin.write(first, admin.begin(NAME, second).producer_id)


def ended(admin: FakeAdmin) -> None:
    admin.begin(NAME, next(iter(admin.partitions)))
    admin.lose_markers(NAME, commit=True)


OPEN: dict[str, tuple[Callable[[FakeAdmin], None], Reason]] = {
    "a producer id of the other cluster": (copied, Reason.NO_TRANSACTIONAL_ID),
    "one that is idle here": (not_started, Reason.NOT_STARTED),
    "one that is live here, elsewhere": (on_another_partition, Reason.NOT_A_PARTICIPANT),
    "one that has ended here": (ended, Reason.ALREADY_COMPLETED),
}


@pytest.mark.parametrize(("make", "reason"), OPEN.values(), ids=OPEN.keys())
def test_a_copy_is_never_judged_by_absence(admin: FakeAdmin, make: Callable[[FakeAdmin], None], reason: Reason) -> None:
    make(admin)
    here = next(iter(admin.partitions))
    assert [(span.partition, proof.reason) for span, proof in searched(admin, None).hanging] == [(here, reason)]
    found = searched(admin, "ord.*")
    assert found.hanging == []
    assert here in [span.partition for span, _ in found.unproven]
    (why,) = (why for what, why in found.not_checked.items() if what.startswith(f"{here} "))
    assert "foreign_topics" in why


def test_only_a_whole_name_is_that_of_a_copy(admin: FakeAdmin) -> None:
    copied(admin)
    assert len(searched(admin, "rder").hanging) == 1


def test_a_live_transaction_holds_a_copy_like_any_topic(admin: FakeAdmin) -> None:
    admin.begin(NAME, next(iter(admin.partitions)))
    found = searched(admin, "orders")
    assert [described.transactional_id for _, described in found.covered] == [NAME]
    assert found.not_checked == {}
