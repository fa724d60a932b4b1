"""What a consumer of the events topic sees after a batch, compared with what the ledger knows.

After each batch the ledger has read every record, also the forged ones, and has published its answers. So the last
record of each incident, which compaction keeps, must agree with the ledger. A consumer that keeps the first of two
events with one sequence sees the same, at the latest after the batch that follows the last record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from simulation.world import World
from support.shared_log import SharedLog
from txnwatch.state.incidents.claims import differs
from txnwatch.state.incidents.ledger import Ledger
from txnwatch.state.model.incident import IncidentEvent, partition_of
from txnwatch.state.model.verdicts import Verdict

_BATCHES_OF_A_CLAIM = 12  # reads between which something happens prove nothing


def wrong_on_topic(ledger: Ledger, log: SharedLog, begin: int, ends: Mapping[str, int]) -> Iterator[str]:
    """What is wrong on the topic.

    Args:
        ledger: what the ledger knows.
        log: the topic.
        begin: its length before the batch.
        ends: the ends that the ledger has published in the batch before, as sequences by incident.
    """
    last, shown = log.left, log.shown
    # A tombstone of this batch may follow a record that the ledger had not read yet.
    buried = {incident_id for incident_id, number in log.buried.items() if number >= begin}
    in_batch = buried | {event.incident_id for event in log.records[begin:]}
    for known in ledger.store.known.values():
        is_hidden = known.incident_id in buried
        is_late = known.incident_id in ledger.book.untold and ledger.book.may_be_told(known.incident_id)
        is_hidden = is_hidden or is_late  # it is told after a pause
        problem = _wrong(ledger, known, last.get(known.incident_id)) if not is_hidden else None
        if problem is None and known.incident_id not in in_batch and not is_hidden:
            problem = _wrong(ledger, known, shown.get(known.incident_id))
        if problem is None and not is_hidden and known.is_open and known.sequence == ends.get(known.incident_id):
            problem = "LOST END"  # the record of another writer, with the same sequence, came first
        if problem is not None:
            yield f"{problem}: incident {known.incident_id} about {known.subject}"
    spans = Counter(one.span for one in ledger.book.open_incidents if one.span is not None and not one.is_by_hand)
    for span, times in spans.items():
        if times > 1 and all(ledger.book.is_found(one) for one in ledger.book.open_incidents if one.span == span):
            yield f"DOUBLE: {span} has {times} open incidents"


class LiveClaims:
    """Incidents that only another writer claims, about transactions that are live: a fresh read contradicts them."""

    def __init__(self) -> None:
        self._batches: dict[str, int] = {}

    def wrong(self, ledger: Ledger, world: World) -> Iterator[str]:
        """The claims that are open for several batches, although everything can be read."""
        open_ones = [one for one in ledger.book.open_incidents if self._is_live(ledger, world, one)]
        self._batches = {one.incident_id: self._batches.get(one.incident_id, 0) + 1 for one in open_ones}
        for one in open_ones:
            if self._batches[one.incident_id] > _BATCHES_OF_A_CLAIM:
                yield f"LIVE: incident {one.incident_id} about {one.subject} is open, and its transaction goes on"

    def _is_live(self, ledger: Ledger, world: World, one: IncidentEvent) -> bool:
        if one.verdict != Verdict.HANGING or one.topic is None or one.is_by_hand or ledger.book.was_found(one):
            return False
        partition = partition_of(one)
        at = world.data.get(partition)
        if at is None or at.topic_id != one.topic_id or not at.is_listable or not world.is_whole or world.hidden:
            return False
        is_open = (one.producer_id, one.txn_start_offset) in at.open_spans()
        return is_open and world.coordinators.is_ongoing(one.producer_id, partition)


def _wrong(ledger: Ledger, known: IncidentEvent, last: IncidentEvent | None) -> str | None:
    if last is None:
        return "NOT PUBLISHED" if known.is_open and ledger.book.is_found(known) else None
    if not known.is_open:
        return "HIDDEN END" if last.is_open else None
    if not ledger.book.is_found(known):
        return None
    if not last.is_open:
        return "SUPPRESSED ON THE TOPIC"
    return "FORGED CONTENT" if differs(last, known) else None
