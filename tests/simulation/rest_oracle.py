"""What is left when the world and the forger stand still: after a few batches, what is open is true.

Nothing moves any more, every broker answers, and the ledger has checked its open incidents several times. So an open
incident is about data that is open, an open transaction has one incident, with the verdict and the values of now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulation.partition import DataPartition
from simulation.world import World
from support.shared_log import SharedLog
from txnwatch.state.incidents.ledger import Ledger
from txnwatch.state.model.findings import StrayWrite
from txnwatch.state.model.incident import EndKind, ExpectedOutcome, IncidentEvent, OutcomeDoubt, partition_of
from txnwatch.state.model.verdicts import Verdict

_MANY_MORE = 10  # as in ending.py
_WITHDRAWN = {OutcomeDoubt.BEGUN_SINCE, OutcomeDoubt.WRITTEN_SINCE, OutcomeDoubt.CONTRADICTION}


def wrong_at_rest(ledger: Ledger, log: SharedLog, world: World) -> Iterator[str]:
    """What is wrong, each problem with its kind."""
    seen = set()
    for known in ledger.book.open_incidents:
        if known.topic is None or known.is_by_hand:
            continue
        at = world.data.get(partition_of(known))
        problem = _wrong(ledger, known, at)
        if problem is None and known.span in seen:
            problem = "STILL DOUBLE"
        seen.add(known.span)
        if problem is None and at is not None and ledger.book.is_found(known):
            is_shown = known.incident_id in log.shown
            # A forged record with a small number stays, and so does one with the number that is not told again.
            is_old = _is_old(known, at) and _is_old(log.left.get(known.incident_id, known), at)
            problem = "NOT SHOWN" if not is_shown else "OLD VALUE" if is_old else None
        if problem is not None:
            yield f"{problem}: incident {known.incident_id} about {known.subject}"


def _wrong(ledger: Ledger, known: IncidentEvent, at: DataPartition | None) -> str | None:
    start = known.txn_start_offset
    if at is None or at.topic_id != known.topic_id:
        return "NEVER ENDED"
    if (known.producer_id, start) not in at.open_spans():
        # The leader's list alone does not show an end above the last stable offset: the marker may not be committed.
        is_claim_above = not ledger.book.was_found(known) and start is not None and start >= at.last_stable_offset
        return None if is_claim_above else "NEVER ENDED"
    assert known.span is not None
    evidence = ledger.findings.get(known.span)
    is_proven = evidence is not None and evidence.start_offset == start
    return "OLD VERDICT" if is_proven and known.verdict != Verdict.HANGING else None


def _is_old(known: IncidentEvent, at: DataPartition) -> bool:
    """Whether ten times as many records are hidden as in an event."""
    if not known.is_lso_blocker or known.hidden_records is None:
        return False
    return at.high_watermark - at.last_stable_offset >= _MANY_MORE * max(1, known.hidden_records)


def untold(ledger: Ledger, log: SharedLog, strays: Iterable[StrayWrite], *, decides: bool) -> Iterator[str]:
    """What the ledger has found and the topic does not have, if nobody forges events.

    `decides` is whether the automatic abort decides about each proven hang at once.
    """
    for stray in strays:
        if not any(_is_about(event, stray) for event in log.records):
            yield f"STRAY WRITE NOT TOLD: {stray.partition} of producer id {stray.producer_id}"
    for known, _ in ledger.book.proven():
        last = log.left[known.incident_id]
        if ledger.book.as_found(known).expected_outcome == ExpectedOutcome.UNKNOWN != last.expected_outcome:
            yield f"OLD OUTCOME: incident {known.incident_id} about {known.subject}: {last.expected_outcome}"
        if decides and last.action is None:
            yield f"NOT DECIDED: incident {known.incident_id} about {known.subject}"


def _is_about(event: IncidentEvent, stray: StrayWrite) -> bool:
    return event.topic is not None and (partition_of(event), event.producer_id) == (stray.partition, stray.producer_id)


def lost_outcomes(told: Iterable[IncidentEvent], log: SharedLog) -> Iterator[str]:
    """The ends that compaction leaves without an outcome that a watcher has told; `told` are its last events."""
    for event in told:
        end = log.left.get(event.incident_id)
        if event.expected_outcome != ExpectedOutcome.UNKNOWN and end is not None and _has_lost(end):
            yield f"OUTCOME LOST: incident {event.incident_id} about {event.subject}: {event.expected_outcome}"


def _has_lost(end: IncidentEvent) -> bool:
    if end.is_open or end.verdict != Verdict.HANGING or end.expected_outcome != ExpectedOutcome.UNKNOWN:
        return False
    return not knows_more(end)


def knows_more(event: IncidentEvent) -> bool:
    """Whether an event with `unknown` knows more than one with the outcome: nothing hangs, or it is withdrawn."""
    is_refuted = event.resolution is not None and event.resolution.how is EndKind.REFUTED
    return is_refuted or event.outcome_doubt in _WITHDRAWN
