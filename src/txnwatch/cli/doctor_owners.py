"""The rows of `txnwatch doctor` about owners: the most frequent beginnings of transactional ids, and who has none.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from txnwatch.cli.doctor_rows import CheckRow, Health
from txnwatch.owners.id_shapes import taken_apart
from txnwatch.owners.owner_table import OwnerTable
from txnwatch.state.model.ownership import Subject
from txnwatch.state.text import some

MOST: Final = 10
LOOKED_AT: Final = 100_000  # 3 s
_NAMED: Final = 3
_CHECK, _NEEDED_BY = "owners", "-"


def owner_rows(transactional_ids: Sequence[str], table: OwnerTable) -> Iterator[CheckRow]:
    """One row for all ids, and one for each of the most frequent beginnings.

    An id whose owner follows from the topic or from a group counts as one without: a list of ids has neither.
    """
    if not transactional_ids:
        return
    looked_at = transactional_ids[:LOOKED_AT]
    count: Counter[str] = Counter()
    without: Counter[str] = Counter()
    teams: dict[str, dict[str, None]] = {}
    for one in looked_at:
        owner = table.of(Subject(one)).owner
        key = beginning(one)
        count[key] += 1
        if owner is None:
            without[key] += 1
        else:
            teams.setdefault(key, {})[owner.team] = None
    yield _of_all(len(transactional_ids), len(looked_at), without, table)
    for key, number in count.most_common(MOST):
        owners = f"owner {some(list(teams[key]), _NAMED)}" if key in teams else "no owner"
        some_without = f", {without[key]} of them without an owner" if key in teams and without[key] else ""
        detail = f"{number} id{'s' if number != 1 else ''}: {owners}{some_without}"
        yield CheckRow(_CHECK, key, Health.OK, detail, _NEEDED_BY, None)


def _of_all(total: int, looked_at: int, without: Counter[str], table: OwnerTable) -> CheckRow:
    """With a table, ids without an owner are a warning."""
    subject = "transactional ids"
    first = f" (the first {looked_at} were looked up)" if looked_at < total else ""
    if not table.teams:
        detail = f"{total} ids{first}; there is no table of owners (owners_file), so no event names whom to call"
        return CheckRow(_CHECK, subject, Health.OK, detail, _NEEDED_BY, None)
    if not without:
        return CheckRow(_CHECK, subject, Health.OK, f"each of {total} ids{first} has an owner", _NEEDED_BY, None)
    often = some([key for key, _ in without.most_common(MOST)], MOST)
    detail = f"{without.total()} of {total} ids{first} have no owner by their name; most often {often}"
    fix = "add these to transactional_ids or applications of an entry in owners_file, if an owner is known"
    return CheckRow(_CHECK, subject, Health.WARNING, detail, _NEEDED_BY, fix)


def beginning(transactional_id: str) -> str:
    """What ids of one application have in common, as a pattern of the table if it is at the beginning of the id."""
    application = taken_apart(Subject(transactional_id))
    if application is None:
        return transactional_id
    if transactional_id.startswith(application.name):
        return f"{application.name}*"
    return f"application {application.name}"
