"""What a check of `txnwatch audit` is: its group, its severities, its remedies, and the incidents that it explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, OutcomeDoubt
from txnwatch.state.model.verdicts import Reason, Verdict


class ExposureSeverity(StrEnum):
    """How bad an exposure is."""

    CRITICAL = "critical"
    WARN = "warn"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return list(ExposureSeverity).index(self)


SEVERITY_MEANS: Final = {
    ExposureSeverity.CRITICAL: "an ordinary event is enough for a hang or a lost transaction: a broker restarts, or a "
    "request is late",
    ExposureSeverity.WARN: "a rarer fault is needed",
    ExposureSeverity.INFO: "it makes recovery slow or detection blind, matters only beside another fault, or no "
    "setting of this release ends it",
}


class CheckGroup(StrEnum):
    """What a check is about; also the order of the output."""

    BROKERS = "brokers"
    LOG = "coordinators' log"
    TOPICS = "topics"
    IDS = "transactional ids"
    RIGHTS = "rights"


class Basis(StrEnum):
    """What a finding rests on."""

    PROVEN = "proven"
    BY_VERSION = "by_version"
    BY_SETTING = "by_setting"
    STATISTICAL = "statistical"


class RemedyLine(NamedTuple):
    """One remedy of a check.

    Attributes:
        applies: to which version, client or value it applies.
        text: what to do.
        command: the tool of Kafka and its arguments, with names in braces; empty if no command does it.
        reassigns: whether the command needs a plan of reassignment behind it.
    """

    applies: str
    text: str
    command: tuple[str, ...] = ()
    reassigns: bool = False


LOST_IDS: Final = frozenset({Reason.NO_TRANSACTIONAL_ID})


class IncidentSign(NamedTuple):
    """What an incident looks like that a check can be the cause of.

    Attributes:
        reasons: of a hang; empty for any.
        outcomes: how its transaction would have ended, as far as it is known; empty for any, also unknown.
        doubts: why the outcome of a hang is unknown; empty for any, also for a known outcome.
        least_epoch: the lowest epoch of the producer.
    """

    verdict: Verdict
    reasons: frozenset[Reason] = frozenset()
    outcomes: frozenset[ExpectedOutcome] = frozenset()
    least_epoch: int = 0
    doubts: frozenset[OutcomeDoubt] = frozenset()

    def is_of(self, event: IncidentEvent) -> bool:
        """Whether an incident looks so."""
        return (
            event.verdict == self.verdict
            and (not self.reasons or event.reason in self.reasons)
            and (not self.outcomes or event.expected_outcome in self.outcomes)
            and (not self.doubts or event.outcome_doubt in self.doubts)
            and event.producer_epoch >= self.least_epoch
        )

    @property
    def is_lost_id(self) -> bool:
        """Whether it is the loss of an id: a fault of the coordinators' log, whichever topic has the data."""
        return self.reasons == LOST_IDS

    def __str__(self) -> str:
        """As the docs show it."""
        parts = (
            ("reason", sorted(self.reasons)),
            ("expected outcome", sorted(self.outcomes)),
            ("outcome in doubt because of", sorted(self.doubts)),
            ("producer epoch", [f"{self.least_epoch} or more"] if self.least_epoch else []),
        )
        return ", ".join([str(self.verdict), *(f"{what} {' or '.join(values)}" for what, values in parts if values)])


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """One check.

    Attributes:
        fires: what makes a finding, and how bad it is then.
        silent: the near miss: what looks alike and is no finding.
        remedies: by a name that the check's code uses.
        right: what it needs beyond the rights of `find-hanging`.
        asks: the requests that it rests on.
        issues: of Apache Kafka.
        explains: the incidents that it can be the cause of.
    """

    name: str
    group: CheckGroup
    severities: tuple[ExposureSeverity, ...]
    fires: str
    silent: str
    remedies: Mapping[str, RemedyLine]
    right: str
    asks: str
    issues: tuple[str, ...] = ()
    explains: tuple[IncidentSign, ...] = ()

    @property
    def reads_log(self) -> bool:
        """Whether it finds nothing unless the coordinators' log is read."""
        return "the coordinators' log" in self.asks and self.group is not CheckGroup.BROKERS
