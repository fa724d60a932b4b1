"""Two instances and a client that forges: whatever comes in which order, the last record of a hang is its true end.

One instance knows the outcome and the other does not. Each may come late, also later than the other one waits. The
client writes ends, changes and old records, sometimes just before an event of an instance, with the same sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from support.incidents import an_update
from support.seeds import in_proportion
from support.shared_log import SharedLog, SharedLogSink
from support.watchers import Watchers
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.ends import Ends
from txnwatch.state.incidents.life import LIFE, Happening, NextStep
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.incident import EndedBy, EndKind, IncidentEvent, OutcomeDoubt, Resolution, resolved

COMES = ("knows comes", "later comes")
FORGED = ("an end", "an end without the outcome", "another end", "a change", "the first record", "the last record")
Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from((*COMES, *COMES, "the marker", *FORGED, "quicker")), st.sampled_from((500, 6_000, 70_000))
    ),
    max_size=12,
)
_AT_REST = 30


class RacedSink(SharedLogSink):
    """A way of writing before which, once, a forged end is quicker, with the sequence of the event."""

    forges = False

    def publish(self, events: Sequence[IncidentEvent]) -> None:
        if self.forges and events:
            RacedSink.forges = False
            before = replace(events[0], sequence=max(events[0].sequence - 1, 1))
            self._log.records.append(an_end(before, EndKind.ABORTED, "unknown"))
        super().publish(events)


def _raced(log: SharedLog) -> RacedSink:
    return RacedSink(log)


def an_end(event: IncidentEvent, how: EndKind, outcome: str) -> IncidentEvent:
    over = Resolution(how=how, by=EndedBy.UNKNOWN, marker_offset=3, at_ms=1)
    doubt = OutcomeDoubt.NO_RECORD if outcome == "unknown" else None
    return replace(resolved(event, event.time_ms, over), expected_outcome=outcome, outcome_doubt=doubt)


class Story:
    """The steps of one example, and what is left after them."""

    def __init__(self) -> None:
        RacedSink.forges = False
        with mock.patch.object(SharedLog, "sink", _raced):
            self.watchers = Watchers.of_one_hang()
        self.pending: dict[str, list[Finding]] = {"knows": [], "later": []}
        self.is_over, self.at_the_marker = False, list[IncidentEvent]()

    def _comes(self, name: str, after_ms: int) -> None:
        ledger: RunningLedger = getattr(self.watchers, name)
        emitted, self.pending[name] = tuple(self.pending[name]), []
        self.watchers.batch(ledger, after_ms=after_ms, emitted=emitted)

    def marker(self) -> None:
        if not self.is_over:
            ended = self.watchers.world.abort(self.watchers.named)
            self.is_over = True
            self.at_the_marker = [one for one in self.watchers.knows.open_incidents if one.expected_outcome == "abort"]
            for findings in self.pending.values():
                findings.append(ended)

    def forge(self, what: str) -> None:
        log, last = self.watchers.log, self.watchers.last
        match what:
            case "an end":
                log.records.append(an_end(last, EndKind.COMMITTED, "commit"))
            case "an end without the outcome":
                log.records.append(an_end(last, EndKind.ABORTED, "unknown"))
            case "another end":
                log.records.append(an_end(last, EndKind.REFUTED, "none"))
            case "a change":
                log.records.append(replace(an_update(last, last.time_ms), resolution=None, status="updated"))
            case "the first record":
                log.records.append(log.records[0])
            case _:
                log.records.append(replace(last, expected_outcome="commit"))

    def tell(self, steps: Sequence[Step]) -> None:
        for what, after_ms in steps:
            if what in COMES:
                self._comes(what.split()[0], after_ms)
            elif what == "the marker":
                self.marker()
            elif what == "quicker":
                RacedSink.forges = True
            else:
                self.forge(what)
        RacedSink.forges = False
        self.marker()
        for _ in range(_AT_REST):
            self._comes("later", 3_000)
            self._comes("knows", 3_000)

    def wrong(self) -> list[str]:
        """What is wrong: an incident is open, or what the one that knows the outcome had open ends otherwise."""
        left = self.watchers.log.left
        problems = [f"{one} is open at rest" for one, event in left.items() if event.is_open]
        for one in self.at_the_marker:
            last = left[one.incident_id]
            how = last.resolution.how if last.resolution is not None else None
            if (how, last.expected_outcome) != ("aborted", "abort"):
                problems.append(f"{last.incident_id} is {how}, and its outcome {last.expected_outcome}")
        return problems


def wrong_after(steps: Sequence[Step]) -> list[str]:
    """What is wrong after these steps."""
    story = Story()
    story.tell(steps)
    return story.wrong()


@given(steps=STEPS)
@settings(max_examples=in_proportion(300), deadline=None)
def test_the_last_record_of_a_hang_is_its_true_end(steps: Sequence[Step]) -> None:
    assert not wrong_after(steps)


_meaning = Ends.meaning


def _if_new(self: Ends, record: IncidentEvent, known: IncidentEvent, *, is_new: bool) -> Happening | None:
    return _meaning(self, record, known, is_new=is_new) if is_new else None


_AFTER_END = LIFE[Happening.RECORD_AFTER_END]
PLANTED = {
    "a record after our end stays the last one": mock.patch.dict(
        LIFE, {Happening.RECORD_AFTER_END: _AFTER_END._replace(ended=NextStep.NOTHING)}
    ),
    "an end that others have published is not compared": mock.patch.object(
        Ends, "take_found_late", lambda self, end, _, now_ms: self.take_found(end, now_ms)
    ),
    "a record with the sequence of our end stays the last one": mock.patch.object(Ends, "meaning", _if_new),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_step_is_found(name: str) -> None:
    with PLANTED[name]:
        found = find(STEPS, lambda steps: bool(wrong_after(steps)), settings=settings(max_examples=500, deadline=None))
    assert not wrong_after(found)
