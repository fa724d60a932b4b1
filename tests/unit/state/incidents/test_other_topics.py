"""Two watchers of one cluster with other topics: each speaks about its own, and one about whole transactions."""

from __future__ import annotations

import pytest

from support.fake_lease import FakeLease
from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.group_lease import SpeakerGate
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.speaking import SILENT, WHOLE, SpeakerRole
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.values import lease_group, transactions_group

OF_PARTITIONS = SpeakerRole(speaks=True, tells_transactions=False)


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


def tell(ledger: RunningLedger, role: SpeakerRole) -> None:
    ledger.role = lambda: role


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


def test_only_a_speaker_asks_for_the_lease_of_transactions_and_no_heartbeat_takes_it_away() -> None:
    lease, joined = FakeLease(), list[FakeLease]()
    left = list[FakeLease]()

    def join() -> FakeLease:
        joined.append(one := FakeLease())
        one.close = lambda: left.append(one)  # type: ignore[method-assign]
        return one

    gate = SpeakerGate(lease, join, lambda _: None)
    lease.held = False
    assert gate.role() == SILENT
    assert not joined
    lease.held = True
    assert [gate.role(), gate.role()] == [WHOLE, WHOLE]
    gate.hear()
    assert gate.role() == WHOLE
    joined[0].held = False
    assert gate.role() == OF_PARTITIONS
    lease.held = False
    assert gate.role() == SILENT
    assert left == joined
    lease.held = True
    assert gate.role() == WHOLE._replace(tenure=1), "another instance may have spoken in between"
    assert len(joined) == 2


def test_the_name_of_a_group_says_which_topics_it_watches() -> None:
    assert lease_group("cluster", "0123456789abcdef") == "txnwatch-speaker-cluster-01234567"
    assert transactions_group("cluster") == "txnwatch-speaker-cluster-transactions"
