"""Clusters as `txnwatch audit` sees them: brokers of a release, topics with replicas, ids with records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from txnwatch.state.audit.audit_facts import (
    MIN_ISR,
    AnswerOfBroker,
    AuditedId,
    AuditedTopic,
    AuditFacts,
    LoggedState,
    LogPart,
    ReplicasOfPartition,
    SetValue,
    holders_of,
)
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.exposure_rows import PeriodicAudit, row_of_exposure
from txnwatch.state.audit.exposures import explained, unexplained, unexplained_line
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import NO_OWNERS, OwnerLookup
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.text import Grantee

NOW_MS = 1_800_000_000_000
KRAFT_3_3, KRAFT_3_9 = "3.3", "3.9"
_KEYS = (0, 1, 2, 24, 26, 27, 35, 66, 11)
# As brokers answer: 3.3.2, 3.9.2, 4.0.0, 4.3.1 and 4.4.0 were asked; the others are from their schemas.
_ANSWERS: dict[str, tuple[tuple[int, ...], int]] = {
    "3.3": ((9, 13, 7, 3, 3, 1, 4, 0, 9), 7),
    "3.6": ((9, 15, 8, 4, 3, 1, 4, 0, 9), 14),
    "3.7": ((10, 16, 8, 4, 3, 1, 4, 0, 9), 19),
    "3.8": ((11, 16, 8, 5, 4, 1, 4, 1, 9), 20),
    "3.9": ((11, 17, 9, 5, 4, 1, 4, 1, 9), 21),
    "4.0": ((12, 17, 10, 5, 5, 1, 4, 1, 9), 25),
    "4.2": ((13, 18, 11, 5, 5, 2, 4, 2, 9), 29),
    "4.3": ((13, 18, 11, 5, 5, 2, 5, 2, 9), 30),
    "4.4": ((13, 18, 11, 5, 5, 2, 5, 2, 9), 33),
}


def broker(
    release: str = "4.2",
    *,
    settings: Mapping[str, str] | None = None,
    level: int | None = 2,
    lowest: Mapping[int, int] | None = None,
    **more: Any,
) -> AnswerOfBroker:
    """A broker of a release; `level` is that of transaction.version, None if the levels are not known."""
    highest, metadata = _ANSWERS[release]
    versions = {key: ((lowest or {}).get(key, 0), high) for key, high in zip(_KEYS, highest, strict=True)}
    supported = {"metadata.version": metadata, **({"transaction.version": 2} if release >= "4" else {})}
    finalized = {"metadata.version": metadata, **({"transaction.version": level} if level else {})}
    values = {"transaction.partition.verification.enable": "true", "transaction.max.timeout.ms": "900000"}
    return AnswerOfBroker(
        versions=more.pop("versions", versions),
        supported=supported,
        finalized=finalized if level is not None else None,
        settings={**values, **(settings or {})},
        **more,
    )


def topic(
    name: str = "payments",
    replicas: Sequence[int] = (1, 2, 3),
    *,
    in_sync: Sequence[int] | None = None,
    leader: int | None = 1,
    transactional: bool = True,
    settings: Mapping[str, tuple[str, int] | str] | None = None,
    **more: Any,
) -> AuditedTopic:
    """A topic with one partition."""
    values = {"min.insync.replicas": "2", "cleanup.policy": "delete", "unclean.leader.election.enable": "false"}
    given = {**values, **(settings or {})}
    return AuditedTopic(
        name,
        {0: ReplicasOfPartition(leader, tuple(replicas), tuple(replicas if in_sync is None else in_sync))},
        frozenset({0} if transactional else ()),
        {
            key: SetValue(*value) if isinstance(value, tuple) else SetValue(value, 1 if key == MIN_ISR else 5)
            for key, value in given.items()
        },
        **more,
    )


def log(**more: Any) -> AuditedTopic:
    """A healthy coordinators' log with one partition."""
    settings = {"cleanup.policy": "compact", **more.pop("settings", {})}
    return topic(TRANSACTION_STATE_TOPIC, transactional=False, settings=settings, **more)


def offsets(**more: Any) -> AuditedTopic:
    """`__consumer_offsets` with offsets that were committed in a transaction."""
    settings = {"cleanup.policy": "compact", **more.pop("settings", {})}
    return topic(CONSUMER_OFFSETS_TOPIC, settings=settings, **more)


def record(state: TransactionState = TransactionState.COMPLETE_COMMIT, **more: Any) -> LoggedState:
    """A record of the log, an hour old."""
    values: dict[str, Any] = {
        "offset": 5,
        "timestamp_ms": NOW_MS - 3_600_000,
        "producer_id": 1,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "start_ms": NOW_MS - 3_600_100,
        "updated_ms": NOW_MS - 3_600_000,
        "client_version": 2,
        **more,
    }
    return LoggedState(state=state, **values)


def an_id(name: str = "checkout-1", *records: LoggedState, partition: int = 0, own: int = 0, **more: Any) -> AuditedId:
    """A transactional id that has written to `payments`."""
    place = frozenset({TopicPartition("payments", 0)})
    log_part = LogPart(partition, more.pop("whole_from_ms", None))
    return AuditedId(name, log_part, list(records) or [record()], place, is_misplaced=own != partition, **more)


def facts(
    *topics: AuditedTopic,
    brokers: Sequence[AnswerOfBroker] | None = None,
    ids: Iterable[AuditedId] | None = (),
    **more: Any,
) -> AuditFacts:
    """A cluster of three healthy brokers, unless something else is given."""
    known = brokers if brokers is not None else [broker() for _ in range(3)]
    shown = {one.name: one for one in (log(), topic(), *topics)}
    by_name = {one.name: one for one in ids} if ids is not None else None
    more.setdefault("holders", holders_of(shown))
    return AuditFacts(dict(enumerate(known, 1)), shown, NOW_MS, by_name, **more)


def an_audit(of: AuditFacts, *events: IncidentEvent, owners: OwnerLookup = NO_OWNERS) -> PeriodicAudit:
    """What a watch finds in such a cluster, with incidents of the events topic."""
    result = audit(of)
    fitting = tuple(explained(one, events) for one in result.exposures)
    admin = Grantee("kafka-1:9092", "User:admin")
    rows = tuple(
        row_of_exposure(one, of, admin, owners, fit) for one, fit in zip(result.exposures, fitting, strict=True)
    )
    line = unexplained_line(unexplained(result.exposures, events))
    return PeriodicAudit(of.now_ms, result.exposures, rows, fitting, line, result.missing)


def found(of: AuditFacts) -> list[str]:
    """The findings, as severity and check."""
    return [f"{one.severity} {one.check.name}" for one in audit(of).exposures]


def missing(of: AuditFacts) -> list[str]:
    """What could not be checked."""
    return [one.what for one in audit(of).missing]
