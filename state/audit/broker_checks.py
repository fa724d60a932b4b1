"""Checks of the brokers: their releases, the levels of features, and their settings. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from txnwatch.state.audit.audit_check import Basis, ExposureSeverity
from txnwatch.state.audit.audit_facts import (
    CLEANER,
    MIN_ISR,
    ROLES,
    UNCLEAN,
    AuditedId,
    AuditFacts,
    NotAudited,
    ReplicasOfPartition,
)
from txnwatch.state.audit.exposures import ChosenRemedy, Exposure, SeenValue, exposure, more_replicas, nodes, remedy
from txnwatch.state.audit.id_checks import client_version
from txnwatch.state.audit.releases import SKIPS_MARKERS, TRANSACTION_VERSION, Release
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, WEEK_MS, BrokerId, TopicPartition
from txnwatch.state.text import counted

VERIFICATION: Final = "transaction.partition.verification.enable"
MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
BROKER_SETTINGS: Final = (VERIFICATION, MAX_TIMEOUT, PROTOCOLS, CLEANER, MIN_ISR, UNCLEAN, ROLES)
_HOUR_MS: Final = 3_600_000
_CRITICAL, _WARN, _INFO = ExposureSeverity


def _of_release(facts: AuditFacts, brokers: Sequence[BrokerId]) -> list[SeenValue]:
    by_release = {
        release: [node for node in brokers if facts.releases[node] == release] for release in facts.releases.values()
    }
    return [
        SeenValue("ApiVersions", f"versions of {nodes(of)}", f"those of release {release}")
        for release, of in by_release.items()
        if of
    ]


def releases_unknown(facts: AuditFacts) -> Iterator[NotAudited]:
    """The brokers whose release is not known: no check by release can be made of them."""
    for node in facts.away:
        yield NotAudited(f"broker {node}", "it has replicas and is away: its release and its settings were not read")
    for node, broker in sorted(facts.brokers.items()):
        if broker.problem is not None:
            yield NotAudited(f"broker {node}", str(broker.problem))
        elif broker.release is None:
            yield NotAudited(
                f"release of broker {node}",
                "its versions are of no release of Apache Kafka that txnwatch knows: a later one, a fork, or a proxy",
            )
        elif broker.settings_problem is not None:
            yield NotAudited(f"settings of broker {node}", str(broker.settings_problem))
    if facts.is_level_unknown:
        yield NotAudited(
            f"level of {TRANSACTION_VERSION}", "no broker knows the levels of the cluster's features now: audit again"
        )


def marker_skipped(facts: AuditFacts) -> Iterator[Exposure]:
    """KAFKA-20734."""
    affected = facts.brokers_of(*SKIPS_MARKERS)
    if not affected:
        return
    used = {
        topic.place(number): of
        for topic in facts.transactional_topics
        for number in sorted(topic.transactional)
        if (of := topic.partitions.get(number)) is not None
    }
    now = [place for place, of in used.items() if of.leader is None]
    near = [
        place for place, of in used.items() if of.leader is not None and (len(of.replicas) == 1 or len(of.in_sync) <= 1)
    ]
    weak = [*now, *near]
    if not weak:
        finding = f"{nodes(affected)}: a partition without a leader gets no marker; no partition is near that now"
        yield exposure(
            "marker-skipped",
            _INFO,
            finding,
            Basis.BY_VERSION,
            affected,
            _of_release(facts, affected),
            [remedy("marker-skipped", "upgrade")],
            key="version",
        )
        return
    evidence = SeenValue("Metadata", f"replicas of {weak[0]}", str(list(used[weak[0]].replicas)))
    yield exposure(
        "marker-skipped",
        _INFO if facts.is_single else _CRITICAL,
        f"{nodes(affected)}: {_without_leader(len(now), len(near))}: a transaction that ends then hangs there"
        + ("; with one broker none ends then" if facts.is_single else ""),
        Basis.BY_VERSION,
        weak,
        [*_of_release(facts, affected), evidence],
        [*_of_weak(facts, used, weak), remedy("marker-skipped", "upgrade")],
        topics=frozenset(place.topic for place in weak),
        key="replicas",
    )


def _of_weak(
    facts: AuditFacts, used: Mapping[TopicPartition, ReplicasOfPartition], weak: Sequence[TopicPartition]
) -> Iterator[ChosenRemedy]:
    """What ends it without an upgrade."""
    if any(used[place].leader is None or len(used[place].replicas) > 1 for place in weak):
        yield remedy("marker-skipped", "broker")
    single = [place for place in weak if len(used[place].replicas) == 1]
    if single:
        yield more_replicas("marker-skipped", facts, single)


def _without_leader(now: int, near: int) -> str:
    have = counted(now or near, "partition with transactional data has", "partitions with transactional data have")
    if not now:
        return f"if one broker is away, {have} no leader"
    return f"{have} no leader now" + (f", and {near} more if one broker is away" if near else "")


def _old_clients(facts: AuditFacts) -> list[AuditedId] | None:
    """The ids whose client wrote without the protocol of transaction.version 2 in the last week; None if not known."""
    if facts.ids is None:
        return None
    if facts.is_below_version_2:
        return [audited_id for audited_id in facts.ids.values() if _wrote(facts, audited_id)]
    if facts.transaction_version is None:
        return None
    return [
        audited_id
        for audited_id in facts.ids.values()
        if client_version(audited_id) == 0 and facts.now_ms - audited_id.last.updated_ms < WEEK_MS
    ]


def _wrote(facts: AuditFacts, audited_id: AuditedId) -> bool:
    """Whether the id had a transaction in the last week; Empty can be an id that was only initialised."""
    return any(
        record.state is not TransactionState.EMPTY and facts.now_ms - record.updated_ms < WEEK_MS
        for record in audited_id.records
    )


def _has_new_clients_only(facts: AuditFacts) -> bool:
    """Whether each id of the last week certainly has a client of transaction.version 2."""
    if not facts.ids or not facts.has_all_ids or (facts.transaction_version or 0) < 2:
        return False
    recent = [audited_id for audited_id in facts.ids.values() if facts.now_ms - audited_id.last.updated_ms < WEEK_MS]
    return bool(recent) and all(client_version(audited_id) for audited_id in recent)


def no_verification(facts: AuditFacts) -> Iterator[Exposure]:
    """KIP-890, part 1."""
    off = [node for node, broker in sorted(facts.brokers.items()) if broker.settings.get(VERIFICATION) == "false"]
    if off:
        old = _old_clients(facts)
        severity = _CRITICAL if old else _INFO if facts.is_unused or _has_new_clients_only(facts) else _WARN
        others = f": {counted(len(old), 'transactional id')} of old clients wrote within 7 days" if old else ""
        accept = "accepts" if len(off) == 1 else "accept"
        count = len(facts.brokers) + len(facts.away)
        yield exposure(
            "no-verification",
            severity,
            f"{nodes(off)} of {count} {accept} a write that belongs to no transaction{others}",
            Basis.BY_SETTING,
            off,
            [SeenValue("DescribeConfigs", f"{VERIFICATION} of {nodes(off)}", "false")],
            [remedy("no-verification", "default"), *(remedy("no-verification", "broker", broker=node) for node in off)],
            ids=tuple(audited_id.name for audited_id in old or ()),
            key="setting",
        )
    before = facts.brokers_before(Release(3, 6))
    if before:
        yield exposure(
            "no-verification",
            _INFO,
            f"{nodes(before)}: no release before 3.6 verifies that a write belongs to a transaction",
            Basis.BY_VERSION,
            before,
            _of_release(facts, before),
            [remedy("no-verification", "upgrade")],
            key="version",
        )
    at_3_6 = facts.brokers_of(Release(3, 6))
    if at_3_6 and facts.has_committed_offsets:
        yield exposure(
            "no-verification",
            _INFO,
            f"{nodes(at_3_6)}: release 3.6 does not verify offsets that are committed in a transaction",
            Basis.BY_VERSION,
            at_3_6,
            _of_release(facts, at_3_6),
            [remedy("no-verification", "3.6")],
            key=CONSUMER_OFFSETS_TOPIC,
        )


def old_transaction_version(facts: AuditFacts) -> Iterator[Exposure]:
    """KIP-890, part 2."""
    level = facts.transaction_version
    if level is None or level >= 2:
        return
    has_ids = bool(facts.ids) or bool(facts.transactional_topics)
    yield exposure(
        "old-transaction-version",
        _WARN if has_ids else _INFO,
        f"the cluster has {TRANSACTION_VERSION} {level}: a late write can join the next transaction of its producer",
        Basis.BY_SETTING,
        ["cluster"],
        [SeenValue("ApiVersions", f"finalized {TRANSACTION_VERSION}", str(level))],
        [remedy("old-transaction-version", "raise"), remedy("old-transaction-version", "client")],
        ids=tuple(facts.ids or ()),
    )


def mixed_versions(facts: AuditFacts) -> Iterator[Exposure]:
    """A rolling upgrade that has not ended."""
    releases = sorted(set(facts.releases.values()))
    if len(releases) < 2:
        return
    differs = releases[0] < Release(3, 6) <= releases[-1] or releases[0] < Release(4, 0) <= releases[-1]
    by_release = [f"{release} on {nodes(facts.brokers_of(release))}" for release in releases]
    yield exposure(
        "mixed-versions",
        _WARN if differs else _INFO,
        f"the brokers have several releases: {', '.join(by_release)}",
        Basis.BY_VERSION,
        by_release,
        _of_release(facts, list(facts.releases)),
        [remedy("mixed-versions", "upgrade")],
    )


def stuck_prepare_bugs(facts: AuditFacts) -> Iterator[Exposure]:
    """KAFKA-17877, and what older releases have."""
    new = [
        node
        for node in facts.brokers_of(Release(3, 7), Release(3, 8), Release(3, 9))
        if _has_new_coordinator(facts.brokers[node].settings)
    ]
    if new and facts.has_committed_offsets:
        yield exposure(
            "stuck-prepare-bugs",
            _WARN,
            f"{nodes(new)}: with the new group coordinator, the markers of a transaction that commits offsets can be "
            "taken for written and are not",
            Basis.BY_SETTING,
            new,
            [
                *_of_release(facts, new),
                SeenValue("DescribeConfigs", PROTOCOLS, facts.brokers[new[0]].settings[PROTOCOLS]),
            ],
            [remedy("stuck-prepare-bugs", "classic")],
            issues=("KAFKA-17877",),
            key="KAFKA-17877",
        )
    for issue, before, what, which in _BUGS_OF_3:
        old = facts.brokers_before(before)
        if old and (which != "offsets" or facts.has_committed_offsets):
            yield exposure(
                "stuck-prepare-bugs",
                _INFO,
                f"{nodes(old)}: {what}",
                Basis.BY_VERSION,
                old,
                _of_release(facts, old),
                [remedy("stuck-prepare-bugs", which)],
                issues=(issue,),
                key=issue,
            )


# The issue, the first release that certainly does not have it, what can happen, and the remedy.
_BUGS_OF_3: Final = (
    ("KAFKA-16352", Release(3, 8), "the markers of one transaction can be dropped for those of the next", "upgrade"),
    (
        "KAFKA-17507",
        Release(3, 9),
        "offsets that are committed in a transaction can be wrong until a group moves",
        "offsets",
    ),
)


def _has_new_coordinator(settings: Mapping[str, str]) -> bool:
    return "consumer" in settings.get(PROTOCOLS, "").split(",")


def epoch_bugs(facts: AuditFacts) -> Iterator[Exposure]:
    """KAFKA-19367 and KAFKA-20090."""
    if (facts.transaction_version or 0) < 2:
        return
    first = [node for node in facts.brokers_of(Release(4, 0)) if facts.brokers[node].is_4_0_0]
    if first:
        yield exposure(
            "epoch-bugs",
            _WARN,
            f"{nodes(first)}: in Kafka 4.0.0 an id at its last epoch with an open transaction cannot be initialised",
            Basis.BY_VERSION,
            first,
            [*_of_release(facts, first), SeenValue("ApiVersions", "lowest version of JoinGroup", "2: only 4.0.0")],
            [remedy("epoch-bugs", "patch")],
            issues=("KAFKA-19367", "KAFKA-20090"),
            key="KAFKA-19367",
        )
    others = [node for node in facts.brokers_of(Release(4, 0), Release(4, 1), Release(4, 2)) if node not in first]
    if others:
        yield exposure(
            "epoch-bugs",
            _INFO,
            f"{nodes(others)}: a timeout at the last epoch of a producer id leaves its transaction open for ever",
            Basis.BY_VERSION,
            others,
            _of_release(facts, others),
            [remedy("epoch-bugs", "upgrade")],
            issues=("KAFKA-20090",),
            key="KAFKA-20090",
        )


def late_gauge_blind(facts: AuditFacts) -> Iterator[Exposure]:
    """The brokers' gauge of late transactions."""
    values = {
        node: value
        for node, broker in sorted(facts.brokers.items())
        if (value := broker.number(MAX_TIMEOUT)) is not None
    }
    high = [node for node, value in values.items() if value > _HOUR_MS]
    if high:
        longest = max((audited_id.last.timeout_ms for audited_id in (facts.ids or {}).values()), default=None)
        in_use = f"; the longest timeout in use is {longest} ms" if longest is not None else ""
        yield exposure(
            "late-gauge-blind",
            _INFO,
            f"{nodes(high)}: {MAX_TIMEOUT} is {max(values.values())}{in_use}",
            Basis.BY_SETTING,
            high,
            [SeenValue("DescribeConfigs", MAX_TIMEOUT, str(max(values.values())))],
            [remedy("late-gauge-blind", "alert")],
        )


def coordinator_log_large(facts: AuditFacts) -> Iterator[Exposure]:
    """Brokers that never compact the coordinators' log."""
    off = [node for node, broker in sorted(facts.brokers.items()) if broker.settings.get(CLEANER) == "false"]
    if off and not facts.is_unused:
        yield exposure(
            "coordinator-log-large",
            _WARN,
            f"{nodes(off)}: no log is ever compacted: each new coordinator reads more, and until it has read all, "
            "no transaction of its ids ends",
            Basis.BY_SETTING,
            off,
            [SeenValue("DescribeConfigs", f"{CLEANER} of {nodes(off)}", "false")],
            [remedy("coordinator-log-large", "cleaner")],
            key=CLEANER,
        )
