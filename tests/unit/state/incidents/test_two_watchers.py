"""Two watchers of one cluster, of which one knows the outcome of a hang and the other does not.

If the topic has only signed events, an event of the second repeats the outcome of the first. Otherwise the record of
the first may be forged, and the second never says what it has not found itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from support.fake_groups import FakeGroups
from support.ledger_world import ORIGIN, LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.protocol import action
from txnwatch.state.evidence.ending import LOOK_AGAIN_MS
from txnwatch.state.evidence.outcome import Doubt, unknown, with_outcome
from txnwatch.state.incidents.commands import EventsFlags, Origin
from txnwatch.state.incidents.ledger import PATIENCE_MS
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.incident import Decision, IncidentEvent, OutcomeDoubt, Refusal, updated


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


def two_watchers(origin: Origin) -> Watchers:
    world, log = LedgerWorld(origin=origin), SharedLog()
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


@pytest.fixture
def watchers() -> Watchers:
    return two_watchers(ORIGIN)


@pytest.fixture
def signed() -> Watchers:
    return two_watchers(replace(ORIGIN, events=EventsFlags("events", events_key_file="/keys")))


def refuses(watchers: Watchers, ledger: RunningLedger) -> None:
    (incident,) = ledger.open_incidents
    decided = action(Decision.REFUSED, "later", watchers.world.now_ms, refusal=Refusal.OUTCOME_UNKNOWN)
    ledger.run(ledger.ledger.publish_next(updated(replace(incident, action=decided), watchers.world.now_ms)))


def own_outcome(ledger: RunningLedger) -> str:
    ((_, evidence),) = ledger.ledger.book.proven()
    return evidence.outcome


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
    assert watchers.last.expected_outcome == "unknown"
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


def test_a_decision_is_told_at_once_and_the_other_one_publishes_its_outcome_again(watchers: Watchers) -> None:
    refuses(watchers, watchers.later)
    assert watchers.outcomes() == ["abort", "unknown"]
    watchers.batch(watchers.knows)
    assert watchers.outcomes() == ["abort", "unknown", "abort"]


def test_a_change_that_both_see_and_both_know_is_told_once(watchers: Watchers) -> None:
    again = watchers.world.another(watchers.log, groups=FakeGroups(), evidence=watchers.world.evidence)
    watchers.batch(again, emitted=(watchers.named,))
    many_more_are_hidden(watchers)
    for _ in range(3):
        watchers.batch(watchers.later, again, watchers.knows, after_ms=LOOK_AGAIN_MS)
    assert watchers.outcomes() == ["abort", "abort"]


# The topic has only signed events.


def test_a_change_is_told_at_once_with_the_outcome_of_the_other(signed: Watchers) -> None:
    many_more_are_hidden(signed)
    signed.batch(signed.later, after_ms=LOOK_AGAIN_MS)
    assert signed.outcomes() == ["abort", "abort"]
    assert "txnwatch abort" in (signed.last.suggested_command or ""), "built here, for this outcome"
    signed.batch(signed.knows)
    assert len(signed.log.records) == 2, "it was only slow, and has nothing to add"


def test_an_end_has_the_outcome_of_the_other(signed: Watchers) -> None:
    signed.batch(signed.later, emitted=(signed.world.abort(signed.named),))
    assert signed.last.resolution is not None
    assert signed.outcomes() == ["abort", "abort"]


def test_a_decision_has_the_outcome_of_the_other(signed: Watchers) -> None:
    refuses(signed, signed.later)
    signed.batch(signed.knows, signed.later, after_ms=LOOK_AGAIN_MS)
    assert signed.outcomes() == ["abort", "abort"], "and the other one has nothing to correct"
    assert signed.last.action is not None
    assert signed.last.action.refusal == Refusal.OUTCOME_UNKNOWN
    assert own_outcome(signed.later) == "unknown", "its abort uses what it has found itself"


def test_after_a_restart_it_keeps_it_too(signed: Watchers) -> None:
    again = signed.world.another(signed.log, groups=FakeGroups())
    signed.batch(again, emitted=(signed.nameless,))
    refuses(signed, again)
    assert signed.outcomes() == ["abort", "abort"]


def test_an_outcome_of_before_a_record_that_differs_is_kept(signed: Watchers) -> None:
    differs = replace(signed.last, sequence=2, status="updated", severity="info", expected_outcome="none")
    signed.log.records.append(differs)
    signed.batch(signed.later)
    assert (signed.last.sequence, signed.last.expected_outcome) == (3, "abort")


def test_an_outcome_that_was_withdrawn_is_not_kept(signed: Watchers) -> None:
    withdrawn = with_outcome(signed.last, unknown(OutcomeDoubt.CONTRADICTION))
    signed.log.records.append(replace(withdrawn, sequence=2, status="updated"))
    signed.batch(signed.later)
    refuses(signed, signed.later)
    assert signed.last.expected_outcome == "unknown"


def test_the_outcome_of_other_data_is_not_kept(signed: Watchers) -> None:
    evidence = replace(signed.last.evidence, last_sequence=1_000)
    signed.log.records.append(replace(signed.last, sequence=2, status="updated", evidence=evidence))
    signed.batch(signed.later)
    refuses(signed, signed.later)
    assert signed.last.expected_outcome == "unknown"


def test_one_that_has_found_that_the_outcome_cannot_be_known_does_not_keep_it(signed: Watchers) -> None:
    spans = signed.later.ledger.findings.spans
    for key, evidence in spans.items():
        spans[key] = replace(evidence, doubt=Doubt(OutcomeDoubt.CONTRADICTION))
    refuses(signed, signed.later)
    assert signed.last.expected_outcome == "unknown"


def test_a_change_that_our_next_event_hides_is_told_again(signed: Watchers) -> None:
    many_more_are_hidden(signed)
    signed.batch(signed.knows, after_ms=LOOK_AGAIN_MS)
    signed.world.admin.problems[signed.world.partition] = "its leader does not answer"
    signed.batch(signed.later)
    refuses(signed, signed.later)
    assert (signed.last.hidden_records or 0) < 10, "it could not read the partition since"
    signed.world.admin.problems.clear()
    signed.batch(signed.later, after_ms=LOOK_AGAIN_MS)
    assert (signed.last.hidden_records or 0) > 400
    assert signed.outcomes() == ["abort"] * 4
