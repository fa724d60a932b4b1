"""Two watchers with other topics on one events topic, which both speak; the events are signed.

One scans the topics of the hangs. A census watches them at the other one, which learns no outcome.

A world of handovers.py in which no lease moves, and the topic is never away: what two speakers have queued meanwhile is
published in any order. In each round a hang begins or ends, or an instance is killed. Its problems are those of
handovers.py, and:

REPLACED: an event with the outcome `unknown` follows one with a known outcome.
ARGUING: there are more records about an incident than two instances need that tell different things.
"""

from __future__ import annotations

from simulation.handovers import NAMES, HandoverWorld, wrong_after
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.speaking import WHOLE, SpeakerRole
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TopicWatch


class DividedWorld(HandoverWorld):
    """Both speak, and the coordinator says of each that it is alone in its group."""

    steps = ("hang", "hang", "end", "nothing", "killed")
    most_records = 6

    def begun(self, name: str) -> RunningLedger:
        """See HandoverWorld."""
        ledger = super().begun(name)
        ledger.ledger.is_signed = True
        if name == NAMES[1]:
            ledger.ledger.book.watch_of = lambda _: TopicWatch.BY_CENSUS
        return ledger

    def _role_of(self, _: str) -> SpeakerRole:
        return WHOLE

    def look(self, name: str, event: IncidentEvent, last: IncidentEvent | None) -> None:
        """An event before it is written."""
        if not self.log.is_away:
            self.seen[f"told by {name}"] += 1
            self.problems += [f"{kind}: {event.subject}" for kind in wrong_after(event, last) if kind == "REPLACED"]


def run_divided(seed: int) -> DividedWorld:
    """One world; equal seeds give equal worlds. Nobody forges: every record has a valid signature."""
    world = DividedWorld(3 * seed + 2)
    world.run()
    return world
