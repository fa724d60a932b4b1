"""Two watchers of one cluster, of which one knows the outcome of a hang and the other does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from support.fake_groups import FakeGroups
from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.evidence.ending import LOOK_AGAIN_MS
from txnwatch.state.incidents.ledger import PATIENCE_MS
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.incident import IncidentEvent


@dataclass
class Watchers:
    """`knows` has found the outcome before the id went on; `later` began after that."""

    world: LedgerWorld
    log: SharedLog
    knows: RunningLedger
    later: RunningLedger
    named: SpanCandidate
    nameless: SpanCandidate

    def batch(self, *ledgers: RunningLedger, after_ms: int = 500, emitted: tuple[Finding, ...] = ()) -> None:
        self.world.now_ms += after_ms
        for ledger in ledgers:
            ledger.on_batch(emitted)

    @property
    def last(self) -> IncidentEvent:
        return self.log.records[-1]

    def outcomes(self) -> list[str]:
        return [str(event.expected_outcome) for event in self.log.published]


@pytest.fixture
def watchers() -> Watchers:
    world, log = LedgerWorld(), SharedLog()
    named = world.hang()
    knows = world.another(log, groups=FakeGroups())
    knows.on_batch([named])
    world.admin.init("checkout-1")
    nameless = world.candidate(named.producer_id)
    later = world.another(log, groups=FakeGroups())
    later.on_batch([nameless])
    found = Watchers(world, log, knows, later, named, nameless)
    assert found.outcomes() == ["abort"], "the second has found the hang and not its outcome, and is silent"
    (known,) = later.open_incidents
    assert known.expected_outcome == "unknown"
    return found


def many_more_are_hidden(watchers: Watchers) -> None:
    watchers.world.admin.plain(watchers.world.partition, 500)


def test_both_see_a_change_and_the_one_that_knows_the_outcome_tells_it(watchers: Watchers) -> None:
    many_more_are_hidden(watchers)
    for _ in range(5):
        watchers.batch(watchers.later, watchers.knows, after_ms=LOOK_AGAIN_MS)
    assert watchers.outcomes() == ["abort", "abort"]
    assert (watchers.last.hidden_records or 0) > 400


def test_an_end_is_told_at_once_by_the_first_that_sees_it(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    watchers.batch(watchers.later, emitted=(ended,))
    watchers.batch(watchers.knows, emitted=(ended,))
    for _ in range(3):
        watchers.batch(watchers.later, watchers.knows)
    (resolution,) = [event.resolution for event in watchers.log.records if event.resolution is not None]
    assert resolution.how == "aborted"
    assert watchers.later.open_incidents == watchers.knows.open_incidents == []


def test_if_the_one_that_knows_is_gone_a_change_is_told_a_minute_later(watchers: Watchers) -> None:
    many_more_are_hidden(watchers)
    watchers.batch(watchers.later, after_ms=LOOK_AGAIN_MS)
    assert len(watchers.log.records) == 1
    watchers.batch(watchers.later, after_ms=max(LOOK_AGAIN_MS, PATIENCE_MS))
    assert [(event.status, event.expected_outcome) for event in watchers.log.records] == [
        ("opened", "abort"),
        ("updated", "unknown"),
    ]
    watchers.batch(watchers.knows)
    assert watchers.last.expected_outcome == "abort", "it was only slow, and corrects the record"


def test_a_record_with_the_facts_that_are_found_here_is_enough_however_long_it_is_there(watchers: Watchers) -> None:
    many_more_are_hidden(watchers)
    watchers.batch(watchers.knows, after_ms=LOOK_AGAIN_MS)
    for _ in range(20):
        watchers.batch(watchers.later, after_ms=LOOK_AGAIN_MS)
    assert watchers.outcomes() == ["abort", "abort"]


@pytest.mark.parametrize("hidden", [1, 10**15])
def test_a_record_with_other_facts_buys_a_minute_and_no_more(watchers: Watchers, hidden: int) -> None:
    forged = replace(
        watchers.last, sequence=2, status="updated", hidden_records=hidden, expected_outcome="commit", time_ms=0
    )
    watchers.log.records.append(forged)
    watchers.batch(watchers.later)
    many_more_are_hidden(watchers)
    for _ in range(3):
        watchers.batch(watchers.later, after_ms=LOOK_AGAIN_MS)
    assert watchers.last != forged
    assert 400 < (watchers.last.hidden_records or 0) < 1_000


def test_a_record_with_another_severity_buys_no_time(watchers: Watchers) -> None:
    forged = replace(watchers.last, sequence=2, status="updated", severity="info", expected_outcome="none")
    watchers.log.records.append(forged)
    watchers.batch(watchers.later)
    assert (watchers.last.sequence, watchers.last.severity) == (3, "critical")
