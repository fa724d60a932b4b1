"""Two watchers of one cluster with other topics: each speaks about its own, and one about whole transactions."""

from __future__ import annotations

import pytest

from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.speaking import SESSION_MS, UNHEARD_MS, WHOLE, Speaking, Voice
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.ports import LeaseView
from txnwatch.state.model.values import TimestampMs, lease_group

OF_PARTITIONS = Voice(speaks=True, of_transactions=False)


class Groups:
    """`orders` watches the topic with the hangs, and `payments` does not."""

    def __init__(self) -> None:
        self.world, self.log = LedgerWorld(), SharedLog()
        self.orders = self.world.another(self.log, name="orders")
        self.payments = self.world.another(self.log, name="payments")
        self.payments.ledger.book.watches = lambda topic: topic != self.world.partition.topic

    def both(self, *emitted: Finding, after_ms: int = 500) -> None:
        self.world.now_ms += after_ms
        self.orders.on_batch(emitted)
        self.payments.on_batch([])

    def told(self) -> list[tuple[int, str]]:
        return [(event.sequence, event.status) for event in self.log.records]


def tell(ledger: RunningLedger, voice: Voice) -> None:
    ledger.voice = lambda: voice


def test_a_watcher_of_other_topics_neither_ends_nor_answers_an_incident() -> None:
    groups = Groups()
    candidate = groups.world.hang()
    groups.both(candidate)
    ended = groups.world.abort(candidate)  # it is over, and those that watch the topic have not seen it yet
    for _ in range(4):
        groups.world.now_ms += 61_000
        groups.payments.on_batch([])
    assert groups.told() == [(1, "opened")]
    groups.both(ended)
    groups.both()
    assert groups.told() == [(1, "opened"), (2, "resolved")]
    assert groups.payments.open_incidents == []


@pytest.mark.parametrize("first", ["orders", "payments"])
def test_an_incident_about_a_transaction_is_told_by_one_of_them(first: str) -> None:
    groups = Groups()
    voices = {"orders": groups.orders, "payments": groups.payments}
    for name, ledger in voices.items():
        tell(ledger, WHOLE if name == first else OF_PARTITIONS)
    late = groups.world.late()
    for _ in range(4):
        groups.world.now_ms += 61_000
        for ledger in voices.values():
            ledger.on_batch([late])
    assert groups.told() == [(1, "opened")]
    tell(voices.pop(first), OF_PARTITIONS)  # and the other one tells it from now on
    ((_, other),) = voices.items()
    tell(other, WHOLE)
    for ledger in (groups.orders, groups.payments, groups.orders):
        ledger.on_batch([])
    assert groups.told() == [(1, "opened")]


def test_of_the_speakers_that_are_heard_the_lowest_digest_tells_transactions() -> None:
    speaking = Speaking("b")
    now_ms = TimestampMs(0)
    assert speaking.voice(LeaseView.HELD, now_ms) == WHOLE
    speaking.hear("c", now_ms)
    assert speaking.voice(LeaseView.HELD, now_ms) == WHOLE
    speaking.hear("a", now_ms)
    assert speaking.voice(LeaseView.HELD, now_ms) == OF_PARTITIONS
    for _ in range(0, UNHEARD_MS, SESSION_MS):
        now_ms += SESSION_MS
        voice = speaking.voice(LeaseView.HELD, now_ms)
    assert voice == WHOLE, "it is no longer heard"


def test_the_name_of_a_group_says_which_topics_it_watches() -> None:
    assert lease_group("cluster", "0123456789abcdef") == "txnwatch-speaker-cluster-01234567"
