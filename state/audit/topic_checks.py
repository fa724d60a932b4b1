"""Checks of the coordinators' log and of topics with transactional data: replicas, settings. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from txnwatch.state.audit.audit_check import Basis, ExposureSeverity
from txnwatch.state.audit.audit_facts import (
    CLEANER,
    MIN_ISR,
    ON_TOPIC,
    UNCLEAN,
    AuditedTopic,
    AuditFacts,
    NotAudited,
    SetValue,
)
from txnwatch.state.audit.exposures import (
    REPLICAS,
    ChosenRemedy,
    Exposure,
    SeenValue,
    exposure,
    first_back,
    for_topics,
    more_replicas,
    nodes,
    remedy,
)
from txnwatch.state.audit.releases import SKIPS_MARKERS, Release
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from txnwatch.state.text import counted, quoted, some

CLEANUP: Final = "cleanup.policy"
RETENTION, DELETE_RETENTION = "retention.ms", "delete.retention.ms"
TOPIC_SETTINGS: Final = (MIN_ISR, UNCLEAN, CLEANUP, RETENTION, DELETE_RETENTION)
_HOUR_MS: Final = 3_600_000
# Kafka's class DescribeConfigsResponse.ConfigSource
_WHERE: Final = {ON_TOPIC: "on the topic", 3: "as the cluster-wide default"}
_COUNTS_SINCE: Final = Release(3, 9)  # with KRaft
_UNCAPPED_TO: Final = Release(3, 3)
_CRITICAL, _WARN, _INFO = ExposureSeverity
_WITH_DATA: Final = " with transactional data"
_NAMED = 3


def _have(partitions: int, which: str = "") -> str:
    return counted(partitions, f"partition{which} has", f"partitions{which} have")


def settings_unknown(facts: AuditFacts) -> Iterator[NotAudited]:
    """The topics whose settings are hidden, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for topic in _judged(facts):
        if topic.settings_problem is not None:
            by_reason.setdefault(str(topic.settings_problem), []).append(topic.name)
    for why, names in by_reason.items():
        yield NotAudited(f"settings of topics {some(names, _NAMED)}", why)


def _judged(facts: AuditFacts) -> list[AuditedTopic]:
    """The coordinators' log and the topics with transactional data."""
    return [*([facts.log] if facts.log is not None else []), *facts.transactional_topics]


def _below_minimum(facts: AuditFacts, topic: AuditedTopic, numbers: Sequence[int]) -> list[TopicPartition]:
    """The partitions that accept no transactional write and no marker now.

    A leader never needs more replicas in sync than the partition has (Partition.effectiveMinIsr); up to 3.3 it does.
    """
    is_capped = not facts.releases or max(facts.releases.values()) > _UNCAPPED_TO

    def is_below(number: int) -> bool:
        of, minimum = topic.partitions[number], facts.minimum(topic, number) or 1
        return of.leader is None or len(of.in_sync) < (min(minimum, len(of.replicas)) if is_capped else minimum)

    return [topic.place(number) for number in numbers if is_below(number)]


def _numbers(topic: AuditedTopic) -> list[int]:
    """The partitions that are judged: all of the coordinators' log, of another topic those with transactional data."""
    wanted = topic.partitions if topic.name == TRANSACTION_STATE_TOPIC else topic.transactional
    return sorted(number for number in wanted if number in topic.partitions)


def _in_one_rack(facts: AuditFacts, topic: AuditedTopic) -> list[TopicPartition]:
    """The partitions whose replicas are all in one rack; none if a rack is not set, or if there is only one."""
    racks = {node: broker.rack for node, broker in facts.brokers.items()}
    if None in racks.values() or len(set(racks.values())) < 2:
        return []

    def racks_of(replicas: Sequence[BrokerId]) -> set[str | None]:
        return {racks.get(node) for node in replicas}

    pairs = [(number, topic.partitions[number].replicas) for number in _numbers(topic)]
    return [
        topic.place(number)
        for number, of in pairs
        if len(of) > 1 and len(racks_of(of)) == 1 and None not in racks_of(of)
    ]


def coordinator_log_config(facts: AuditFacts) -> Iterator[Exposure]:
    """The settings and the replicas of `__transaction_state`."""
    name, log = "coordinator-log-config", facts.log
    if log is None:
        return
    yield from _deleted_records(facts, log)
    yield from _single_replicas(facts, log)
    stopped = _below_minimum(facts, log, _numbers(log))
    if stopped:
        yield exposure(
            name,
            _CRITICAL,
            f"{_have(len(stopped))} no leader or too few in-sync replicas now: no transaction of an id there can "
            "begin, end or time out",
            Basis.PROVEN,
            stopped,
            [_in_sync(facts, stopped[0])],
            [remedy(name, "broker")],
            key="in_sync",
        )
    yield from _minimum_of_log(facts, log)
    one_rack = _in_one_rack(facts, log)
    if one_rack:
        yield exposure(
            name,
            _WARN,
            f"{_have(len(one_rack))} all replicas in one rack",
            Basis.BY_SETTING,
            one_rack,
            [SeenValue("Metadata", "rack", str(facts.brokers[log.partitions[one_rack[0].partition].replicas[0]].rack))],
            [remedy(name, "racks")],
            key="racks",
        )


def _deleted_records(facts: AuditFacts, log: AuditedTopic) -> Iterator[Exposure]:
    """Retention of the logs that only compaction may shorten."""
    name, effects = "coordinator-log-config", {log.name: (_CRITICAL, "transactional ids, and what they had open hangs")}
    effects[CONSUMER_OFFSETS_TOPIC] = (
        _WARN,
        "offsets that were committed in transactions, and their data is read again",
    )
    for topic in [log, *(topic for topic in facts.transactional_topics if topic.name == CONSUMER_OFFSETS_TOPIC)]:
        policy, (severity, effect) = topic.value(CLEANUP), effects[topic.name]
        if policy is not None and "delete" in policy:
            yield exposure(
                name,
                severity,
                f"{CLEANUP} of {topic.name} is {policy}: retention deletes {effect}",
                Basis.BY_SETTING,
                [topic.name],
                [SeenValue("DescribeConfigs", f"{CLEANUP} of {topic.name}", policy)],
                [remedy(name, "compact", topic=topic.name)],
                topics=frozenset({topic.name} - {log.name}),
                key=CLEANUP if topic is log else topic.name,
            )


def _single_replicas(facts: AuditFacts, log: AuditedTopic) -> Iterator[Exposure]:
    name = "coordinator-log-config"
    single = [log.place(number) for number in _numbers(log) if len(log.partitions[number].replicas) == 1]
    if single:
        yield exposure(
            name,
            _INFO if facts.is_single else _CRITICAL,
            f"{_have(len(single))} one replica: while its broker is away, no transaction of an id there can end",
            Basis.BY_SETTING,
            single,
            [
                SeenValue(
                    "Metadata", f"replicas of {single[0]}", str(list(log.partitions[single[0].partition].replicas))
                )
            ],
            [more_replicas(name, facts, single)],
            key="replicas",
        )


def _minimum_of_log(facts: AuditFacts, log: AuditedTopic) -> Iterator[Exposure]:
    name, places = "coordinator-log-config", [log.place(at) for at in _numbers(log)]
    least = min((len(of.replicas) for of in log.partitions.values()), default=1)
    minimums = [minimum for at in _numbers(log) if (minimum := facts.minimum(log, at)) is not None]
    if not minimums or least == 1:
        return
    minimum = 1 if 1 in minimums else max(minimums)
    if minimum == 1:
        finding = f"{MIN_ISR} is 1: a power failure of one broker can lose an outcome that the client was told"
    elif minimum >= least:
        finding = f"{MIN_ISR} is {minimum}, of {least} replicas: each restart of a broker stops its ids"
    else:
        return
    yield exposure(
        name,
        _WARN,
        finding,
        Basis.BY_SETTING,
        [log.name],
        [SeenValue("DescribeConfigs", MIN_ISR, str(minimum))],
        [_remedy_of_minimum(log, minimum) if least >= REPLICAS else more_replicas(name, facts, places)],
        key=MIN_ISR,
    )


def _remedy_of_minimum(log: AuditedTopic, minimum: int) -> ChosenRemedy:
    """A minimum of 2. To raise it stops each partition that has one replica in sync."""
    two = remedy("coordinator-log-config", "min.isr")
    weak = [of for of in log.partitions.values() if minimum < 2 and len(of.in_sync) < 2]
    behind = [node for of in weak for node in of.replicas if node not in of.in_sync]
    return first_back(behind, two.text) if behind else two


def _in_sync(facts: AuditFacts, place: TopicPartition) -> SeenValue:
    topic = facts.topics[place.topic]
    of, minimum = topic.partitions[place.partition], facts.minimum(topic, place.partition)
    value = f"leader {of.leader}, in sync {list(of.in_sync)}, {MIN_ISR} {minimum}"
    return SeenValue("Metadata", str(place), value)


def unclean_election(facts: AuditFacts) -> Iterator[Exposure]:
    """Unclean elections, where the setting that is seen decides; topics with the same cause are one finding."""
    by_cause: dict[_Unclean, list[AuditedTopic]] = {}
    for topic in _judged(facts):
        cause = _unclean(facts, topic)
        if cause is not None:
            by_cause.setdefault(cause, []).append(topic)
    for cause, topics in by_cause.items():
        names = [topic.name for topic in topics]
        yield exposure(
            "unclean-election",
            cause.severity,
            f"{some(names, _NAMED)}: {UNCLEAN} is true {cause.where}: {cause.effect}",
            Basis.BY_SETTING,
            names,
            [
                SeenValue(
                    "DescribeConfigs", f"{UNCLEAN} of {nodes(cause.at) if cause.at else some(names, _NAMED)}", "true"
                )
            ],
            [
                *(remedy("unclean-election", "node", broker=node) for node in cause.at),
                *for_topics(names, lambda topic: remedy("unclean-election", "topic", topic=topic)),
            ],
            topics=frozenset(names),
            key=cause.where,
        )


class _Unclean(NamedTuple):
    """Where it is true, what follows, and the brokers that have it as controllers."""

    severity: ExposureSeverity
    where: str
    effect: str
    at: tuple[BrokerId, ...]


def _unclean(facts: AuditFacts, topic: AuditedTopic) -> _Unclean | None:
    """How bad it is for one topic, and why; None if it is off, has no effect, or cannot be seen."""
    set_value = topic.settings.get(UNCLEAN)
    copied = [number for number in _numbers(topic) if len(topic.partitions[number].replicas) > 1]
    decided = _unclean_where(facts, set_value) if set_value is not None and copied and facts.releases else None
    if decided is None:
        return None
    where, at = decided
    if not facts.has_zookeeper and max(facts.releases.values()) < _COUNTS_SINCE:
        return _Unclean(_INFO, where, f"KRaft before {_COUNTS_SINCE} ignores it until the upgrade", at)
    if topic.name == TRANSACTION_STATE_TOPIC:
        return _Unclean(_CRITICAL, where, "an unclean election can lose the outcomes of transactions", at)
    is_weak = any(facts.minimum(topic, number) == 1 or len(topic.partitions[number].in_sync) <= 1 for number in copied)
    return _Unclean(_CRITICAL if is_weak else _WARN, where, "an unclean election can lose a marker", at)


def _unclean_where(facts: AuditFacts, set_value: SetValue) -> tuple[str, tuple[BrokerId, ...]] | None:
    """Where it is true and counts, and the brokers that have it as controllers; None if it is false or not seen.

    The active controller takes the first of: the topic, its own node, the cluster-wide default, its own file. A broker
    that is also a controller shows what the last three are for it (ConfigurationControlManager.getTopicConfig).
    """
    where = (
        _WHERE.get(set_value.source, "on the brokers" if facts.has_zookeeper else None)
        if set_value.value == "true"
        else None
    )
    of_controllers = facts.controllers if set_value.source != ON_TOPIC else {}
    at = tuple(node for node, broker in of_controllers.items() if broker.settings.get(UNCLEAN) == "true")
    if where is not None and (at or not of_controllers):
        return where, ()
    return (f"on {nodes(at)}, which can be the active controller", at) if at else None


def unclean_unseen(facts: AuditFacts) -> Iterator[NotAudited]:
    """Topics whose setting comes from where brokers cannot see what decides: controllers that are no brokers."""
    if facts.has_zookeeper or not facts.releases or max(facts.releases.values()) < _COUNTS_SINCE or facts.controllers:
        return
    by_file = [
        topic.name
        for topic in _judged(facts)
        if (set_value := topic.settings.get(UNCLEAN)) is not None
        and set_value.value == "true"
        and set_value.source not in _WHERE
    ]
    if by_file:
        yield NotAudited(
            f"{UNCLEAN} of {some(by_file, _NAMED)}",
            "a broker sets it to true, for itself; the settings of the controllers decide, and no request of a broker "
            "shows them: ask `kafka-configs.sh --bootstrap-controller`, or set it to false on the topics",
        )


def replication(facts: AuditFacts) -> Iterator[Exposure]:
    """The replicas of topics with transactional data; those with the same cause are one finding."""
    topics = facts.transactional_topics
    single = [
        topic.place(number)
        for topic in topics
        for number in _numbers(topic)
        if len(topic.partitions[number].replicas) == 1
    ]
    if single:
        place, skips = single[0], not facts.is_single and bool(facts.brokers_of(*SKIPS_MARKERS))
        replicas = list(facts.topics[place.topic].partitions[place.partition].replicas)
        yield exposure(
            "replication",
            _INFO if facts.is_single else _WARN,
            f"{_have(len(single), _WITH_DATA)} one replica: while its broker is away, "
            + ("the transactions that end get no marker there" if skips else "no transaction there can end"),
            Basis.BY_SETTING,
            single,
            [SeenValue("Metadata", f"replicas of {place}", str(replicas))],
            [more_replicas("replication", facts, single)],
            topics=frozenset(place.topic for place in single),
            key="replicas",
        )
    stopped = [(topic, place) for topic in topics for place in _below_minimum(facts, topic, _numbers(topic))]
    if stopped:
        yield exposure(
            "replication",
            _CRITICAL,
            f"{_have(len(stopped))} no leader or too few in-sync replicas now: no marker can be written there",
            Basis.PROVEN,
            [place for _, place in stopped],
            [_in_sync(facts, stopped[0][1])],
            [remedy("replication", "broker")],
            topics=frozenset(topic.name for topic, _ in stopped),
            key="in_sync",
        )
    yield from _minimum_of_topics(facts, topics)
    yield from _racks_of_topics(facts, topics)


def _racks_of_topics(facts: AuditFacts, topics: Sequence[AuditedTopic]) -> Iterator[Exposure]:
    one_rack = [place for topic in topics for place in _in_one_rack(facts, topic)]
    if one_rack:
        yield exposure(
            "replication",
            _INFO,
            f"{_have(len(one_rack), _WITH_DATA)} all replicas in one rack",
            Basis.BY_SETTING,
            one_rack,
            [SeenValue("Metadata", f"racks of {one_rack[0]}", "one")],
            [remedy("replication", "racks")],
            topics=frozenset(place.topic for place in one_rack),
            key="racks",
        )


def _minimum_of_topics(facts: AuditFacts, topics: Sequence[AuditedTopic]) -> Iterator[Exposure]:
    """The topics that need all of their replicas in sync."""
    tight = {topic.name: places for topic in topics if (places := _need_all(facts, topic))}
    if not tight:
        return
    names, first = [*tight], next(iter(tight.values()))[0]
    least = {
        name: min(len(facts.topics[name].partitions[at.partition].replicas) for at in tight[name]) for name in names
    }
    few = [at for name in names if least[name] < REPLICAS for at in tight[name]]
    lower = [name for name in names if least[name] >= REPLICAS]
    yield exposure(
        "replication",
        _WARN,
        f"{some(names, _NAMED)}: {MIN_ISR} is no less than the replication factor: while one broker restarts, no "
        "transaction there can end",
        Basis.BY_SETTING,
        names,
        [
            SeenValue(
                "DescribeConfigs",
                f"{MIN_ISR} of {first}",
                str(facts.minimum(facts.topics[first.topic], first.partition)),
            )
        ],
        [
            *([more_replicas("replication", facts, few)] if few else []),
            *for_topics(lower, lambda topic: remedy("replication", "min.isr", topic=topic, value=least[topic] - 1)),
        ],
        topics=frozenset(names),
        key=MIN_ISR,
    )


def _need_all(facts: AuditFacts, topic: AuditedTopic) -> list[TopicPartition]:
    """The partitions with several replicas that need each of them in sync."""
    return [
        topic.place(number)
        for number in _numbers(topic)
        if 1 < len(topic.partitions[number].replicas) <= (facts.minimum(topic, number) or 1)
    ]


def _fewest(topic: AuditedTopic) -> int:
    return min((len(topic.partitions[number].replicas) for number in _numbers(topic)), default=1)


def _compacted(facts: AuditFacts) -> list[tuple[AuditedTopic, int]]:
    """The topics with several replicas that are compacted, and how long their markers are kept."""
    kept = [(topic, topic.number(DELETE_RETENTION)) for topic in facts.transactional_topics]
    return [
        (topic, kept_ms)
        for topic, kept_ms in kept
        if kept_ms is not None and "compact" in (topic.value(CLEANUP) or "") and _fewest(topic) > 1
    ]


def compaction_race(facts: AuditFacts) -> Iterator[Exposure]:
    """Markers that compaction removes before a replica that was away has copied them."""
    copied = _compacted(facts)
    if all(broker.settings.get(CLEANER) == "false" for broker in facts.brokers.values()):
        return  # nothing is compacted
    short = [topic for topic, kept_ms in copied if kept_ms < _HOUR_MS]
    if short:
        names = [topic.name for topic in short]
        yield exposure(
            "compaction-race",
            _WARN,
            f"{some(names, _NAMED)}: compaction removes a marker after {short[0].value(DELETE_RETENTION)} ms, and a "
            "replica that was away for longer never gets it",
            Basis.BY_SETTING,
            names,
            [SeenValue("DescribeConfigs", f"{DELETE_RETENTION} of {names[0]}", str(short[0].value(DELETE_RETENTION)))],
            for_topics(names, lambda topic: remedy("compaction-race", "retention", topic=topic)),
            topics=frozenset(names),
            key=DELETE_RETENTION,
        )
    away = [
        topic.place(number)
        for topic, _ in sorted(copied, key=lambda pair: pair[1])
        for number in _numbers(topic)
        if len(topic.partitions[number].in_sync) < len(topic.partitions[number].replicas)
    ]
    if away:
        topic = facts.topics[away[0].topic]
        yield exposure(
            "compaction-race",
            _WARN,
            f"{_have(len(away), ' of compacted topics')} a replica that is out of sync now: that of {away[0]} must be "
            f"back within {topic.value(DELETE_RETENTION)} ms",
            Basis.PROVEN,
            away,
            [_in_sync(facts, away[0])],
            [remedy("compaction-race", "back")],
            topics=frozenset(place.topic for place in away),
            key="in_sync",
        )


def retention_below_timeout(facts: AuditFacts) -> Iterator[Exposure]:
    """Retention that deletes data before its transaction has to end."""
    for topic in facts.transactional_topics:
        retention = topic.number(RETENTION)
        if retention is None or retention < 0 or "delete" not in (topic.value(CLEANUP) or ""):
            continue
        longest = max(
            facts.writers.get(topic.name, ()), key=lambda audited_id: audited_id.last.timeout_ms, default=None
        )
        if longest is None or longest.last.timeout_ms <= retention:
            continue
        yield exposure(
            "retention-below-timeout",
            _WARN,
            f"{topic.name}: retention deletes data after {retention} ms, and {quoted(longest.name)} may keep a "
            "transaction "
            f"open for {longest.last.timeout_ms} ms",
            Basis.BY_SETTING,
            [topic.name],
            [SeenValue("DescribeConfigs", f"{RETENTION} of {topic.name}", str(retention))],
            [
                remedy("retention-below-timeout", "longer", topic=topic.name, value=longest.last.timeout_ms),
                remedy("retention-below-timeout", "shorter"),
            ],
            topics=frozenset({topic.name}),
        )
