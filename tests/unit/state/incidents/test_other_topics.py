"""Two watchers of one cluster with other topics: each speaks about its own, and one about whole transactions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from support.fake_lease import FakeLease
from support.incidents import an_update
from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.group_lease import SpeakerGate
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.incidents.speaking import SILENT, WHOLE, SpeakerRole
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.incident import IncidentEvent, resolved
from txnwatch.state.model.values import TopicWatch, lease_group, transactions_group

OF_PARTITIONS = SpeakerRole(speaks=True, tells_transactions=False)


class Groups:
    """`orders` watches the topic with the hangs, and `payments` does not."""

    def __init__(self) -> None:
        self.world, self.log = LedgerWorld(), SharedLog()
        self.orders = self.world.another(self.log, name="orders")
        self.payments = self.world.another(self.log, name="payments")
        self.payments.ledger.book.watch_of = lambda _: TopicWatch.NONE

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


class ByCensus(Groups):
    """`orders` scans the topic with the hang and knows the outcome; at `payments` only a census watches it."""

    def __init__(self, first: str) -> None:
        super().__init__()
        self.payments.ledger.book.watch_of = lambda _: TopicWatch.BY_CENSUS
        self.payments.ledger.is_signed = True
        self.hang = self.world.hang()
        tell(self.orders, WHOLE if first == "orders" else SILENT)
        self.orders.on_batch([self.hang])
        self.world.admin.init("checkout-1")  # from now on no coordinator shows the outcome
        self.round(self.world.candidate(self.hang.producer_id))
        tell(self.orders, WHOLE)

    def round(self, *of_census: Finding, of_scan: Sequence[Finding] = ()) -> None:
        self.world.now_ms += 1_000
        self.payments.on_batch(of_census)
        self.orders.on_batch(of_scan)

    def rounds(self) -> None:
        for _ in range(1_000):
            self.round()

    def outcomes(self) -> list[tuple[str, str]]:
        return [(event.status, event.expected_outcome) for event in self.log.records]


def test_a_watcher_whose_census_finds_the_hang_too_does_not_repeat_what_is_told() -> None:
    groups = ByCensus("orders")
    groups.rounds()
    assert groups.outcomes() == [("opened", "abort")]


def test_a_watcher_whose_census_has_told_the_hang_first_takes_what_the_other_one_knows() -> None:
    groups = ByCensus("payments")
    groups.rounds()
    assert groups.outcomes() == [("opened", "unknown"), ("updated", "abort")]


@pytest.mark.parametrize("first", ["orders", "payments"])
def test_the_end_keeps_the_outcome_and_is_told_twice_at_most(first: str) -> None:
    groups = ByCensus(first)
    groups.rounds()
    before, ended = len(groups.log.records), groups.world.abort(groups.hang)
    groups.round(ended, of_scan=[ended])
    groups.rounds()
    assert groups.outcomes()[before:] in ([("resolved", "abort")], [("resolved", "abort")] * 2)


FORGED: dict[str, Callable[[IncidentEvent], IncidentEvent]] = {
    "an end": lambda event: resolved(event, event.time_ms, no_longer_open(event.time_ms, "a forger")),
    "another subject": lambda event: an_update(event, event.time_ms, producer_id=1),
    "a command": lambda event: an_update(event, event.time_ms, suggested_command="rm -rf /"),
    "an outcome": lambda event: an_update(event, event.time_ms, expected_outcome="commit", outcome_by="one"),
    "a detail": lambda event: an_update(event, event.time_ms, outcome_detail="commit it by hand"),
    "no id": lambda event: an_update(event, event.time_ms, transactional_id=None),
    "a severity": lambda event: an_update(event, event.time_ms, severity="info"),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED.keys())
def test_a_forged_record_about_a_topic_that_only_a_census_watches_lives_one_round(
    forge: Callable[[IncidentEvent], IncidentEvent],
) -> None:
    groups = Groups()
    groups.payments.ledger.book.watch_of = lambda _: TopicWatch.BY_CENSUS
    hang = groups.world.hang()
    groups.world.admin.init("checkout-1")  # from now on no coordinator shows the outcome
    groups.payments.on_batch([groups.world.candidate(hang.producer_id)])
    (truth,) = groups.log.records
    groups.log.records.append(forge(truth))
    groups.world.now_ms += 1_000
    groups.payments.on_batch([])
    last = groups.log.records[-1]
    assert last.is_open
    assert last == replace(truth, sequence=3, status=last.status, time_ms=last.time_ms, age_ms=last.age_ms)


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
