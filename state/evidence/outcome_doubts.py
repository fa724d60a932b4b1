"""Why an expected outcome is unknown, and what would make it known: the table of texts. Pure.

docs/abort.md has the table. A doubt is a code of the public contract with a text about the one case.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.model.incident_payload import OutcomeDoubt


class DoubtRule(NamedTuple):
    """One row of the table.

    Attributes:
        means: why the outcome is unknown.
        known_if: what would make it known; for an incident that is open, or for the next one of the same application.
    """

    means: str
    known_if: str


class Doubt(NamedTuple):
    """Why one outcome is unknown; `detail` has the values of the case."""

    kind: OutcomeDoubt
    detail: str = ""

    @property
    def text(self) -> str:
        """The reason and what would make the outcome known, as sentences."""
        rule = DOUBTS[self.kind]
        means = f"{rule.means} ({self.detail})" if self.detail else rule.means
        return f"{means}; {rule.known_if}"


_WATCHER = "an incident that a watcher had opened before has the outcome, if it was known then"

DOUBTS: dict[OutcomeDoubt, DoubtRule] = {
    OutcomeDoubt.NOT_FOUND_HERE: DoubtRule(
        "the instance that wrote the event has not proven the hang itself, and an event is no proof",
        "an instance that finds the hang corrects the event",
    ),
    OutcomeDoubt.NO_RECORD: DoubtRule(
        "no record of the producer id was read from `__transaction_state`",
        "it becomes known if a record of the id is read",
    ),
    OutcomeDoubt.ID_EXPIRED: DoubtRule(
        "the transactional id has expired: its last transaction may have committed",
        _WATCHER,
    ),
    OutcomeDoubt.PRODUCER_ID_SUPERSEDED: DoubtRule(
        "the transactional id uses another producer id now",
        _WATCHER,
    ),
    OutcomeDoubt.TRANSACTION_LIVE: DoubtRule(
        "a later transaction of the id is live",
        _WATCHER,
    ),
    OutcomeDoubt.LOG_NOT_LISTED: DoubtRule(
        "the leader epoch of the partition of `__transaction_state` was not listed when the log was read",
        "the next read of the log shows it",
    ),
    OutcomeDoubt.LOG_ELECTION: DoubtRule(
        "since the last record of the id, the partition of `__transaction_state` has another leader, and an election "
        "can remove records that nobody has read",
        f"{_WATCHER}; the outcomes of transactions that begin from now on are not affected",
    ),
    OutcomeDoubt.BEGAN_BEFORE_ELECTION: DoubtRule(
        "the data may be older than the present leader of the partition of `__transaction_state`, and an election can "
        "remove records that nobody has read",
        f"{_WATCHER}; a watcher knows this of data that begins after it has seen that leader",
    ),
    OutcomeDoubt.EPOCH_SHARED: DoubtRule(
        "other transactions may have used the epoch of the data, and one of them may have committed",
        "the next transaction of a producer with transaction.version 2 has an epoch of its own",
    ),
    OutcomeDoubt.NOT_A_PARTICIPANT: DoubtRule(
        "the last transaction of this epoch did not have the partition as a participant",
        "ask the owner of the application what wrote there",
    ),
    OutcomeDoubt.DATA_MIXED: DoubtRule(
        "the open data has more than one epoch, its beginning is not known, or another transaction has joined it",
        "ask the owner of the application what wrote there",
    ),
    OutcomeDoubt.MARKER_UNKNOWN: DoubtRule(
        "the log of the partition does not show whether the last marker of the producer is that of the transaction",
        "ask the owner of the application",
    ),
    OutcomeDoubt.COORDINATOR_MOVED_ON: DoubtRule(
        "the coordinator has changed the transaction of the id since the log was read",
        "the next read of the log shows it",
    ),
    OutcomeDoubt.NOT_READ: DoubtRule(
        "the log of the partition could not be read yet",
        "the read is repeated",
    ),
    OutcomeDoubt.WRITTEN_MEANWHILE: DoubtRule(
        "data was appended after the listing that the outcome needs",
        "the read is repeated",
    ),
    OutcomeDoubt.WRITTEN_SINCE: DoubtRule(
        "data was appended after the outcome was found, and may belong to another transaction",
        "ask the owner of the application what wrote there",
    ),
    OutcomeDoubt.BEGUN_SINCE: DoubtRule(
        "no transaction owned the data when it was found, but one has begun under its epoch since",
        "ask the owner of the application what wrote there",
    ),
    OutcomeDoubt.CONTRADICTION: DoubtRule(
        "two reads lead to two different outcomes",
        "ask the owner of the application",
    ),
}
