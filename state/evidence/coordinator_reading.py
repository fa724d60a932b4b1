"""Combines the answers of all coordinators about one producer id. Pure: no I/O, no clock.

Law: every id that may have written the data is described, and an answer that may be old proves nothing. All callers of
a fresh read use this function: the watcher, the abort, and the commands that read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txnwatch.state.model.description import DescribedTransaction, NotDescribed, TransactionDescription
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.ports import ListedTransaction, TransactionListing
from txnwatch.state.model.problem import Problem

_MISSING = Problem("it was not described")


@dataclass(frozen=True, slots=True)
class CoordinatorReading:
    """What the coordinators answer about one producer id: the id that maps to it, none, or why this is not known."""

    description: DescribedTransaction | None = None
    problem: Problem | None = None


def names_in_log(candidate: SpanCandidate) -> frozenset[str]:
    """The transactional ids that have used the candidate's producer id, as far as the log that was read names them."""
    view = candidate.view
    names = (view.transactional_id, view.also_used_by) if view is not None else ()
    return frozenset(name for name in names if name is not None)


def coordinator_reading(
    candidate: SpanCandidate,
    descriptions: dict[str, TransactionDescription],
    listing: TransactionListing,
) -> CoordinatorReading:
    """Combines the coordinators' answers; all callers use this function, so all apply the same checks.

    The description of an id counts only if no other broker may be its coordinator: no other broker listed it, and none
    was silent. "No id has the producer id" counts only if the listing is complete.

    A cluster that was restored from a backup may give a producer id to a second transactional id. If any id with the
    producer id holds the span, its marker will come. If none does, it is not known which id has written the data.
    """
    listed = [row for row in listing.transactions if row.producer_id == candidate.producer_id]
    names = sorted({row.transactional_id for row in listed} | names_in_log(candidate))
    problems: list[Problem] = []
    found: list[DescribedTransaction] = []
    for name in names:
        description = descriptions.get(name, NotDescribed(name, _MISSING))
        if isinstance(description, NotDescribed):
            problems.append(description.problem.of(f"transactional id {name!r}"))
        elif isinstance(description, DescribedTransaction):
            doubt = _doubt(description, listed, listing)
            if doubt is not None:
                problems.append(doubt)
            elif covers(description, candidate):
                return CoordinatorReading(description)
            else:
                found.append(description)
    if problems:
        return CoordinatorReading(problem=problems[0])
    if len(names) > 1:
        ids = ", ".join(map(repr, names))
        problem = Problem(f"transactional ids {ids} have the same producer id {candidate.producer_id}")
        return CoordinatorReading(problem=problem)
    return CoordinatorReading(found[0]) if found else CoordinatorReading(problem=_whole(listing.problems))


def _whole(problems: Sequence[Problem]) -> Problem | None:
    return Problem("; ".join(map(str, problems))) if problems else None


def _doubt(
    described: DescribedTransaction, listed: list[ListedTransaction], listing: TransactionListing
) -> Problem | None:
    """Why another broker may be the coordinator: one that has lost the coordinators' log describes an old state."""
    name = described.transactional_id
    brokers = {row.coordinator for row in listed if row.transactional_id == name} | {described.coordinator}
    if len(brokers) > 1:
        numbers = ", ".join(str(broker) for broker in sorted(brokers))
        return Problem(f"brokers {numbers} all answer as coordinators of {name}")
    return _whole(listing.silent)


def covers(description: TransactionDescription, candidate: SpanCandidate) -> bool:
    """Whether a live transaction of the span's producer holds the partition, so that its marker will come."""
    return (
        isinstance(description, DescribedTransaction)
        and description.is_live
        and description.producer_id == candidate.producer_id
        and candidate.partition in description.partitions
    )
