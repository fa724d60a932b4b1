"""The port of the search for transactional ids that have expired; ports.py has the other ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from txnwatch.state.model.ids import ProducerId


class FormerOwnersRead(NamedTuple):
    """What the coordinators' log shows about the transactional ids of some producer ids.

    Attributes:
        names: the transactional id by producer id; None if the log has no record of it, or records of several ids. A
            producer id that is missing here is being read, and the next call continues; or there is a problem.
        problem: why the log could not be read to its end; None if it could be, or if the read is not finished.
    """

    names: Mapping[ProducerId, str | None]
    problem: str | None = None


class FormerOwners(Protocol):
    """Searches the coordinators' log for transactional ids that no coordinator has any more."""

    def read(self, producer_ids: Collection[ProducerId]) -> FormerOwnersRead:
        """Reads the whole log once for some producer ids, as far as the time budget allows."""
