"""What a watcher tells a page of several clusters: the facts, at `/api/v1/facts`, and what cannot be believed of them.

The facts are what the page of the watcher itself is made from. They have no sentence, no command and no address of a
team: those are made by the reader. So the page of several clusters is made by the same table of conditions and the same
picture as that of a watcher. Pure: no I/O, no clock; asking.py asks.

Law:
    * Whoever answers at the address of a watcher can answer anything. `decoded` checks the size, the types and every
      value, and what it refuses is used nowhere.
    * `FORMAT` changes with the meaning of a field. Facts of another format are refused, and the version is named. A
      field that the reader does not know is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from txnwatch.page.store import (
    KnownNow,
    LifeShown,
    Moment,
    PageStore,
    Reach,
    SaidWarning,
    StartStep,
    TargetRow,
    Totals,
    Watched,
)
from txnwatch.state.audit.exposure_rows import ExposureCounts
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.incidents.value_rules import NAME_BYTES, is_cluster_id, is_text, problem_of
from txnwatch.state.model.errors import BadFactsError
from txnwatch.state.model.findings import CensusOffsets, ListedOffsets, OpenTransaction, OpenTransactions
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import OwnerLookup
from txnwatch.state.model.values import (
    INT32,
    INT64,
    LAST_TIME_MS,
    CoordinatorAccess,
    DurationMs,
    Offset,
    PartitionOffset,
    TimestampMs,
    TopicPartition,
    is_log,
    is_topic_name,
)
from txnwatch.state.text import printable

FORMAT: Final = 1
MOST_BYTES: Final = 16 << 20  # not compressed
MOST_TRANSACTIONS: Final = 8_192
MOST_INCIDENTS: Final = 2_000
MOST_NAMED: Final = 500
MOST_TOPICS: Final = 10_000
_MOST_LIVES: Final = 500
_MOST_MOMENTS: Final = 50
_MOST_PARTITIONS: Final = 200_000
_MOST_STATES: Final = 32
_MOST_TARGETS: Final = 100
_VERSION_BYTES: Final = 64
_Told = TypeVar("_Told")


class LifeTold(NamedTuple):
    """What has happened to an incident; its last event is among the incidents."""

    incident_id: str
    moments: tuple[Moment, ...]
    is_whole: bool


class WatcherFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts; the fields that have no word here are those of the store (store.py).

    Attributes:
        format: of these facts.
        topics_digest: of the settings that choose the topics. Watchers with the same one cover the same partitions.
        now_ms: the clock of the watcher; all other times are by it.
        latency_p99_ms: from the hang to the event.
        ends: of scanned partitions.
        by_census: of partitions that only a census watches.
        targets: where events go.
        step: of its start.
        warning: the last one of its log.
        topics: how many partitions of each topic are watched; None if that is not known, or if there are too many.
        exposures: the numbers of the findings of its last audit; None before it.
    """

    format: int
    version: str
    cluster_id: str
    cluster_name: str | None
    instance: str
    topics_digest: str
    now_ms: TimestampMs
    access: CoordinatorAccess | None
    latency_p99_ms: DurationMs | None
    judged_ms: TimestampMs | None
    batch_ms: DurationMs | None
    behind: int | None
    totals: Totals
    transactions: tuple[OpenTransaction, ...]
    blocked: tuple[PartitionOffset, ...]
    ends: tuple[PartitionOffset, ...]
    by_census: tuple[CensusOffsets, ...]
    incidents: tuple[IncidentEvent, ...]
    lives: tuple[LifeTold, ...]
    reach: Reach | None
    is_ready: bool | None
    watched: Watched
    undelivered: int | None
    targets: tuple[TargetRow, ...] = ()
    speaks: bool | None = None
    speaker: str | None = None
    step: StartStep | None = None
    warning: SaidWarning | None = None
    topics: tuple[tuple[str, int], ...] | None = None
    exposures: ExposureCounts | None = None

    def known(self, owners: OwnerLookup) -> KnownNow:
        """As the end of a micro-batch has it. The owners are those of the reader's own table."""
        incidents = tuple(named(event, owners) for event in self.incidents)
        return KnownNow(
            judged_ms=self.judged_ms,
            batch_ms=self.batch_ms,
            behind=self.behind,
            totals=self.totals,
            lists=(OpenTransactions(0, self.transactions, self.blocked),),
            by_census=(ListedOffsets(0, self.by_census, is_round=True),),
            ends=dict(self.ends),
            incidents=incidents,
            reach=self.reach,
            is_ready=self.is_ready,
            watched=self.watched,
            undelivered=self.undelivered,
            targets=self.targets,
            speaks=self.speaks,
            speaker=self.speaker,
            topics=dict(self.topics) if self.topics is not None else None,
            is_source_read=True,
        )

    def lived(self, incidents: Iterable[IncidentEvent]) -> dict[str, LifeShown]:
        """The lives of the incidents that are known."""
        last = {event.incident_id: event for event in incidents}
        told = ((life, last.get(life.incident_id)) for life in self.lives)
        return {
            life.incident_id: LifeShown(event, life.moments, life.is_whole) for life, event in told if event is not None
        }


class _Head(msgspec.Struct, frozen=True):
    format: int
    version: str


# What the watcher tells.


def facts_of(
    store: PageStore, version: str, ends: Mapping[TopicPartition, Offset], now_ms: TimestampMs
) -> WatcherFacts:
    """The facts of this moment; the cluster is known."""
    assert store.origin is not None
    seen = store.seen
    transactions = tuple(transaction for bucket in seen.lists for transaction in bucket.transactions)
    blocked = tuple(place for bucket in seen.lists for place in bucket.blocked)
    drawn = {span.partition for transaction in transactions for span in transaction.spans} | {
        place.partition for place in blocked
    }
    return WatcherFacts(
        format=FORMAT,
        version=version,
        cluster_id=store.origin.cluster_id,
        cluster_name=store.origin.cluster_name,
        instance=store.instance,
        topics_digest=store.topics_digest,
        now_ms=now_ms,
        access=store.access,
        latency_p99_ms=store.latency_p99_ms,
        judged_ms=min(seen.judged_ms, now_ms) if seen.judged_ms is not None else None,
        batch_ms=seen.batch_ms,
        behind=seen.behind,
        totals=seen.totals,
        transactions=transactions,
        blocked=blocked,
        ends=tuple(PartitionOffset(at, ends[at]) for at in sorted(drawn & ends.keys())),
        by_census=tuple(
            offsets for bucket in seen.by_census for offsets in bucket.offsets if offsets.partition in drawn
        ),
        incidents=_told(seen.incidents or ()),
        lives=tuple(LifeTold(key, life.moments, life.is_whole) for key, life in store.lives.items()),
        reach=_cut(seen.reach) if seen.reach is not None else None,
        is_ready=seen.is_ready,
        watched=seen.watched,
        undelivered=seen.undelivered,
        targets=tuple(seen.targets),
        speaks=seen.speaks,
        speaker=seen.speaker,
        step=store.step,
        warning=store.warning,
        topics=_topics(seen.topics),
        exposures=store.exposures,
    )


def _topics(topics: Mapping[str, int] | None) -> tuple[tuple[str, int], ...] | None:
    return tuple(topics.items()) if topics is not None and len(topics) <= MOST_TOPICS else None


def _told(incidents: Iterable[IncidentEvent]) -> tuple[IncidentEvent, ...]:
    """The incidents, as many as fit: the open ones, then those that ended last."""
    return tuple(sorted(incidents, key=lambda event: (not event.is_open, -event.time_ms))[:MOST_INCIDENTS])


def _cut(reach: Reach) -> Reach:
    """The same with the first names only; the others are counted."""
    named, rest = reach.named[:MOST_NAMED], reach.named[MOST_NAMED:]
    undecided = reach.undecided[:MOST_NAMED]
    return reach._replace(
        named=named,
        more=reach.more + len(rest),
        more_of_log=reach.more_of_log + sum(map(is_log, rest)),
        undecided=undecided,
        more_undecided=reach.more_undecided + len(reach.undecided) - len(undecided),
    )


# What is believed.


def decoded(value: bytes) -> WatcherFacts:
    """The facts in an answer.

    Raises:
        BadFactsError: they are of another format, or a value is not valid.
    """
    head = _decoded(value, _HEAD)
    if head.format != FORMAT:
        version = printable(head.version[:_VERSION_BYTES])
        raise BadFactsError(f"expected facts of format {FORMAT}, found {head.format}, of version {version}")
    facts = _decoded(value, _FACTS)
    wrong = next((name for name in facts.__struct_fields__ if not _is_valid(facts, name)), None)
    if wrong is not None:
        raise BadFactsError(f"expected the facts of a watcher: {wrong} has an invalid value")
    return facts


# Made when the module is loaded. Each cluster has a thread that decodes, and msgspec ends the process with SIGSEGV if
# two threads use a type for the first time at the same moment: one of them sees a half-filled description of the type.
_HEAD: Final = msgspec.json.Decoder(_Head)
_FACTS: Final = msgspec.json.Decoder(WatcherFacts)


def _decoded(value: bytes, decoder: msgspec.json.Decoder[_Told]) -> _Told:
    try:
        return decoder.decode(value)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
        raise BadFactsError(f"expected the facts of a watcher: {ascii(str(exc))[:200]}") from exc


# The types are checked by the decoder, and so are the closed sets of values. What is left are the ranges of values:
# those that follow from the type and the name of a field, and the rules of some fields beside them.


def _is_sound(value: object, name: str = "") -> bool:
    """Whether every number fits Kafka's field, every time can be shown, and every text has a bound and is UTF-8."""
    match value:
        case None | bool():
            is_sound = True
        case int():
            is_sound = 0 <= value <= (LAST_TIME_MS if name.endswith("_ms") else INT64)
        case str():
            is_sound = _IS_TEXT(value)
        case TopicPartition():
            is_sound = is_topic_name(value.topic) and 0 <= value.partition <= INT32
        case IncidentEvent():
            is_sound = problem_of(value) is None
        case _:
            assert isinstance(value, tuple | list)
            names = getattr(value, "_fields", itertools.repeat(""))
            is_sound = all(map(_is_sound, value, names))
    return is_sound


_IS_TEXT: Final = is_text(NAME_BYTES)
_MOST: Final = {
    "transactions": MOST_TRANSACTIONS,
    "incidents": MOST_INCIDENTS,
    "lives": _MOST_LIVES,
    "targets": _MOST_TARGETS,
    "topics": MOST_TOPICS,
    **dict.fromkeys(("blocked", "ends", "by_census"), _MOST_PARTITIONS),
}
_RULES: Final[dict[str, Callable[[WatcherFacts], bool]]] = {
    "version": lambda facts: len(facts.version) <= _VERSION_BYTES,
    "cluster_id": lambda facts: is_cluster_id(facts.cluster_id),
    "cluster_name": lambda facts: facts.cluster_name is None or is_cluster_id(facts.cluster_name),
    "judged_ms": lambda facts: facts.judged_ms is None or facts.judged_ms <= facts.now_ms,
    "exposures": lambda facts: facts.exposures is None or facts.exposures.at_ms <= facts.now_ms,
    "totals": lambda facts: len(facts.totals.states) <= _MOST_STATES,
    "transactions": lambda facts: sum(len(transaction.spans) for transaction in facts.transactions) <= _MOST_PARTITIONS,
    "by_census": lambda facts: all(offsets.last_stable <= offsets.end for offsets in facts.by_census),
    "topics": lambda facts: facts.topics is None or all(is_topic_name(topic) for topic, _ in facts.topics),
    "incidents": lambda facts: _are_its_own(facts.incidents, facts.cluster_id),
    "lives": lambda facts: all(len(life.moments) <= _MOST_MOMENTS for life in facts.lives),
    "reach": lambda facts: facts.reach is None or len(facts.reach.named) + len(facts.reach.undecided) <= 2 * MOST_NAMED,
}


def _are_its_own(incidents: Sequence[IncidentEvent], cluster_id: str) -> bool:
    """Whether all are incidents of this cluster, and none comes twice."""
    are_one_each = len({event.incident_id for event in incidents}) == len(incidents)
    return are_one_each and all(event.cluster_id == cluster_id for event in incidents)


def _is_valid(facts: WatcherFacts, name: str) -> bool:
    value = getattr(facts, name)
    fits = name not in _MOST or value is None or len(value) <= _MOST[name]
    rule = _RULES.get(name)
    return fits and _is_sound(value, name) and (rule is None or rule(facts))
