"""What a consumer of the events topic sees after a batch, compared with what the ledger knows.

After each batch the ledger has read every record, also the forged ones, and has published its answers. So the last
record of each incident, which compaction keeps, must agree with the ledger. A consumer that keeps the first of two
events with one sequence sees the same, at the latest after the batch that follows the last record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from support.shared_log import SharedLog
from txnwatch.state.incidents.claims import differs
from txnwatch.state.incidents.ledger import Ledger
from txnwatch.state.model.incident import IncidentEvent


def wrong_on_topic(ledger: Ledger, log: SharedLog, begin: int, ends: Mapping[str, int]) -> Iterator[str]:
    """What is wrong on the topic.

    Args:
        ledger: what the ledger knows.
        log: the topic.
        begin: its length before the batch.
        ends: the ends that the ledger has published in the batch before, as sequences by incident.
    """
    last, shown = log.compacted, log.shown
    in_batch = {event.incident_id for event in log.records[begin:]}
    for known in ledger.store.known.values():
        problem = _wrong(ledger, known, last.get(known.incident_id))
        # A tombstone removes what ended long ago, and a record about it that the ledger has not read yet.
        is_removed = known.incident_id in log.buried and not ledger.book.is_found(known)
        if problem is None and known.incident_id not in in_batch and not is_removed:
            problem = _wrong(ledger, known, shown.get(known.incident_id))
        if problem is None and known.is_open and known.sequence == ends.get(known.incident_id):
            problem = "LOST END"  # the record of another writer, with the same sequence, came first
        if problem is not None:
            yield f"{problem}: incident {known.incident_id} about {known.subject}"
    spans = Counter(one.span for one in ledger.book.open_incidents if one.span is not None and not one.is_by_hand)
    for span, times in spans.items():
        if times > 1 and all(ledger.book.is_found(one) for one in ledger.book.open_incidents if one.span == span):
            yield f"DOUBLE: {span} has {times} open incidents"


def _wrong(ledger: Ledger, known: IncidentEvent, last: IncidentEvent | None) -> str | None:
    if last is None:
        return "NOT PUBLISHED"
    if not known.is_open:
        return "HIDDEN END" if last.is_open else None
    if not ledger.book.is_found(known):
        return None
    if not last.is_open:
        return "SUPPRESSED ON THE TOPIC"
    return "FORGED CONTENT" if differs(last, known) else None
