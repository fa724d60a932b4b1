"""The page of an instance that does not speak: the life of an incident has what its ledger has stored of the topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.incidents import an_event, an_update
from support.pair_of_ledgers import Pair
from txnwatch.page.store import KnownNow, PageStore
from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.model.incident import IncidentEvent, resolved


class SilentPair(Pair):
    """The first instance speaks; the page of the second one takes what its ledger gives."""

    def __init__(self) -> None:
        super().__init__()
        self.page, self.news = PageStore(), 0
        self.page.on_news = self.hurry
        self.two.on_record = self.page.take_record

    def hurry(self) -> None:
        self.news += 1

    def moments(self, event: IncidentEvent) -> list[str]:
        life = self.page.lives.get(event.incident_id)
        return [moment.status for moment in life.moments] if life is not None else []

    def last(self, event: IncidentEvent) -> IncidentEvent:
        return self.page.lives[event.incident_id].last

    def a_batch_of_two(self) -> None:
        self.step(self.two)
        self.page.take([], KnownNow(incidents=self.two.incidents), self.world.now_ms)


@pytest.fixture
def pair() -> SilentPair:
    return SilentPair()


def test_its_life_is_that_of_the_topic_and_wakes_the_stream(pair: SilentPair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.a_batch_of_two()
    (opened,) = pair.log.records
    assert pair.moments(opened) == ["opened"]
    assert pair.news == 1
    pair.step(pair.one, pair.world.abort(candidate))
    pair.a_batch_of_two()
    assert pair.moments(opened) == ["opened", "resolved"]
    assert pair.page.lives[opened.incident_id].is_whole
    assert pair.news == 2
    assert pair.page.latencies_ms == (), "it has published nothing"


def test_what_was_on_the_topic_before_its_start_is_not_in_it(pair: SilentPair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    (opened,) = pair.log.records
    pair.two = pair.an_instance("two")
    pair.two.on_record = pair.page.take_record
    pair.step(pair.two, candidate)
    assert pair.moments(opened) == []
    pair.both(pair.world.abort(candidate))
    pair.a_batch_of_two()
    assert pair.moments(opened) == ["resolved"]
    assert not pair.page.lives[opened.incident_id].is_whole


def test_of_a_record_about_what_it_has_found_it_shows_what_it_has_found(pair: SilentPair) -> None:
    pair.both(pair.world.hang())
    pair.a_batch_of_two()
    (opened,) = pair.log.records
    pair.log.records.append(an_update(opened, 5, transactional_id="forged", suggested_command="rm", severity="info"))
    pair.a_batch_of_two()
    assert pair.moments(opened) == ["opened", "updated"]
    shown = pair.last(opened)
    assert shown == pair.two.ledger.store.known[opened.incident_id]
    assert (shown.transactional_id, shown.severity) == (opened.transactional_id, opened.severity)
    assert "rm" not in shown.suggested_command


def test_the_command_of_a_record_about_something_else_is_built_anew(pair: SilentPair) -> None:
    claim = an_event("claim", suggested_command="rm")
    pair.log.records.append(claim)
    pair.a_batch_of_two()
    assert pair.last(claim) == pair.two.ledger.store.known[claim.incident_id]
    assert pair.last(claim).suggested_command.startswith("txnwatch explain")


def test_records_behind_an_end_that_it_has_found_are_shown_as_one_end(pair: SilentPair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.a_batch_of_two()
    (opened,) = pair.log.records
    pair.step(pair.two, pair.world.abort(candidate))
    for sequence in (2, 3, 4):
        pair.log.records.append(replace(opened, sequence=sequence, severity="info"))
        pair.a_batch_of_two()
    assert pair.moments(opened) == ["opened", "resolved"]


def test_a_speaker_shows_no_record_that_it_answers(pair: SilentPair) -> None:
    pair.speaker = "two"
    pair.both(pair.world.hang())
    (opened,) = pair.log.records
    pair.a_batch_of_two()
    pair.log.records.append(resolved(opened, 5, no_longer_open(5, "a forger")))
    pair.a_batch_of_two()
    assert pair.moments(opened) == []
    assert pair.log.compacted[opened.incident_id].is_open
