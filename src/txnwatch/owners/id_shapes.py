"""The forms of transactional ids that frameworks make, as one table, and how an id is taken apart by it.

A form is text with parts in angle brackets. `<name>` is any text, and `<name:kind>` has a kind of KINDS. Of two parts
of any text, the first ends where the text after it first occurs; the last one takes what the parts behind it leave.

Law: the parts of an id, put together again, are the id, and an id that fits no form stays whole. Each form is one
regular expression whose time is linear: a part with a kind has a longest length, and a part of any text is either the
last one, or is never tried again (an atomic group).

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from txnwatch.state.model.ownership import FLINK, Certainty, IdMaker, IdPart, Subject
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC

_HEX: Final = "[0-9a-fA-F]"
_ANY: Final = ".+?"
LONGEST: Final = 1_000  # no framework makes a longer id; reading one of 32,767 characters would take 30 ms
KINDS: Final = {
    "number": "(?:0|[1-9][0-9]{0,18})",
    "hash": "[1-9][0-9]{4,9}",
    "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    "hex": f"{_HEX}{{32}}",
    "4 digits": "[0-9]{4}",
    "pair": "[^-]+-.+?",  # two names, which may both have hyphens
}


class Rule(Enum):
    """What makes a form certain; the values are for the explanation."""

    ALWAYS = "only this framework makes ids of this form"
    NEVER = ""
    GROUP = "a consumer group has the name of the application"
    CONNECT = "the transaction has a partition of Connect's offsets topic"
    LEADER = "the transaction has a partition of Connect's configuration topic"
    MIRROR = "the transaction has a partition of MirrorMaker's offsets topic"


def _has_topic_of_connect(subject: Subject, what: str) -> bool:
    """Whether a participant is an internal topic of Connect: the workers' configuration names it freely."""
    return any("connect" in topic and what in topic for topic in subject.topics)


_HOLDS: Final[dict[Rule, Callable[[str, Subject], bool]]] = {
    Rule.ALWAYS: lambda _, __: True,
    Rule.NEVER: lambda _, __: False,
    Rule.GROUP: lambda name, subject: name in subject.groups,
    Rule.CONNECT: lambda _, subject: _has_topic_of_connect(subject, "offset"),
    Rule.LEADER: lambda _, subject: _has_topic_of_connect(subject, "config"),
    Rule.MIRROR: lambda _, subject: any(topic.startswith("mm2-offsets.") for topic in subject.topics),
}


class IdShape(NamedTuple):
    """How a framework makes an id.

    Attributes:
        name: the part that names the application; if it is a number, everything before it belongs to the name.
        rule: what makes it certain; without it, it is possible.
        source: where the form is from.
        example: an id of this form.
        commits_offsets: False: its transactions never have a partition of `__consumer_offsets`.
    """

    framework: str
    form: str
    name: str
    rule: Rule
    source: str
    example: str
    commits_offsets: bool = True


_UUID: Final = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
_ACTIVE_TASK: Final = "Kafka, streams/.../internals/ActiveTaskCreator.java"
# The first form that is certain counts, else the first that fits. SmallRye has none: its ids are any text.
SHAPES: Final = (
    IdShape(
        *("ksqlDB", "_confluent-ksql-<service.id>query_<query>-<process:uuid>-<thread:number>", "query", Rule.ALWAYS),
        *("ksqlDB, QueryApplicationId.java", f"_confluent-ksql-default_query_CSAS_ORDERS_5-{_UUID}-1"),
    ),
    IdShape(
        *("Kafka Connect leader", "connect-cluster-<group.id>", "group.id", Rule.LEADER),
        *("Kafka, DistributedConfig.java", "connect-cluster-dwh", False),
    ),
    IdShape(
        "Iceberg sink of Connect",
        "<prefix and role>-txn-<process:uuid>-<task:number>",
        "prefix and role",
        Rule.ALWAYS,
        "Iceberg, Channel.java and IcebergSinkConnector.java",
        f"lake-worker-txn-{_UUID}-3",
    ),
    IdShape(
        *("Beam", "producer_<shard:number>_for_<sink group>", "sink group", Rule.ALWAYS),
        *("Beam, KafkaExactlyOnceSink.java", "producer_4_for_clicks-sink"),
    ),
    IdShape(
        "Hazelcast Jet",
        "jet.job-<job id>.<job and vertex>.<processor:number>-<transaction:number>",
        "job and vertex",
        Rule.ALWAYS,
        "Hazelcast, KafkaTransactionId.java",
        "jet.job-04b5-1234-0000-0001.orders.sink.2-1",
    ),
    IdShape(
        *("Materialize", "materialize-<region, connection and sink>", "region, connection and sink", Rule.ALWAYS),
        *("Materialize's documentation", "materialize-aws-eu-west-1-u12-u40"),
    ),
    IdShape(
        *(FLINK, "<task>-<operator:hex>-<number:number>", "task", Rule.ALWAYS),
        *("Flink, TransactionalIdsGenerator.java, until 1.14", f"Sink: orders-{'0af3' * 8}-7", False),
    ),
    IdShape(
        *("SeaTunnel", "SeaTunnel<prefix:4 digits>-<checkpoint:number>", "prefix", Rule.ALWAYS),
        *("SeaTunnel, KafkaSinkWriter.java, and its documentation", "SeaTunnel4711-12", False),
    ),
    IdShape(
        *("MirrorMaker 2", "<source>-mm2-<connector>-<task:number>", "source", Rule.MIRROR),
        *("Kafka, MirrorMakerConfig.java and Worker.java", "eu-mm2-MirrorSourceConnector-0", False),
    ),
    IdShape(
        *("Kafka Streams", "<application.id>-<process:uuid>-<thread:number>", "application.id", Rule.GROUP),
        *(f"{_ACTIVE_TASK}, exactly_once_v2", f"ledger-eos-{_UUID}-2"),
    ),
    IdShape(
        *("Kafka Streams", "<application.id>-<subtopology:number>_<partition:number>", "application.id", Rule.GROUP),
        *(f"{_ACTIVE_TASK}, exactly_once, before 4.0", "ledger-eos-0_11"),
    ),
    IdShape(
        *("Kafka Streams", "<application.id>-<process:uuid>", "application.id", Rule.GROUP),
        *("Kafka 2.6, StreamsProducer.java, exactly_once_beta", f"ledger-eos-{_UUID}"),
    ),
    IdShape(
        *("Alpakka Kafka", "<prefix><producer:uuid>", "prefix", Rule.NEVER),
        *("Alpakka Kafka, Transactional.scala", f"billing{_UUID}"),
    ),
    IdShape(
        *("NiFi", "<prefix><producer:uuid>", "prefix", Rule.NEVER),
        *("NiFi, TransactionIdSupplier.java", f"nifi-{_UUID}"),
    ),
    IdShape(
        *(FLINK, "<prefix>-<hash of the route:hash>-<subtask:number>-<number:number>", "prefix", Rule.NEVER),
        *("Flink, DynamicKafkaSink's buildTransactionalIdPrefix", "dwh-orders-2893412567-4-1187", False),
    ),
    IdShape(
        *(FLINK, "<prefix>-<subtask:number>-<number:number>", "prefix", Rule.NEVER),
        *("Flink, TransactionalIdFactory.java and TransactionNamingStrategy.java", "dwh-orders-4-1187", False),
    ),
    IdShape(
        *("Faust", "<application>-<table:number>-<partition:number>", "application", Rule.NEVER),
        *("Faust, TransactionManager.transactional_id_format", "clicks-0-11"),
    ),
    IdShape(
        "Kafka Connect source task",
        "<worker group and connector:pair>-<task:number>",
        "worker group and connector",
        Rule.CONNECT,
        *("Kafka, Worker.java, taskTransactionalId", "connect-dwh-audit-0", False),
    ),
    IdShape(
        *("Spring Kafka before 3.0", "<prefix and group>.<topic>.<partition:number>", "prefix and group", Rule.NEVER),
        *("Spring Kafka 2, KafkaMessageListenerContainer.java", "tx-billing.orders.3"),
    ),
    IdShape(
        *("Spring Kafka", "<prefix><number:number>", "prefix", Rule.NEVER),
        *("Spring Kafka, DefaultKafkaProducerFactory.java", "checkout-7"),
    ),
)


_PART: Final = re.compile(r"<([^<>:]+)(?::([^<>]+))?>")


class _ShapePattern(NamedTuple):
    """How ids of one form are read: the names of the parts, and a pattern with a group for each."""

    shape: IdShape
    names: tuple[str, ...]
    pattern: re.Pattern[str]


def _pattern_of(shape: IdShape) -> _ShapePattern:
    pattern, at, names = "", 0, []
    parts = list(_PART.finditer(shape.form))
    open_parts = [part for part in parts if part[2] is None]
    for part in parts:
        pattern += re.escape(shape.form[at : part.start()])
        at = part.end()
        names.append(part[1])
        if part in open_parts[:-1]:
            at = shape.form.index("<", at)
            pattern += f"(?>({_ANY}){re.escape(shape.form[part.end() : at])})"
        else:
            pattern += f"({_ANY if part[2] is None else KINDS[part[2]]})"
    return _ShapePattern(shape, tuple(names), re.compile(pattern + re.escape(shape.form[at:]), re.DOTALL))


PATTERNS: Final = tuple(map(_pattern_of, SHAPES))


def taken_apart(subject: Subject) -> IdMaker | None:
    """What has made the transactional id, by its form and by what else is known of the transaction."""
    fits = list(_fitting(subject))
    if not fits:
        return None
    certain = next((fit for fit in fits if _is_certain(fit, subject)), None)
    shape, parts, name = best = certain or fits[0]
    others = dict.fromkeys(other.framework for other, _, _ in fits if other.framework != shape.framework)
    form = _PART.sub(r"<\1>", shape.form)
    return IdMaker(
        framework=shape.framework,
        name=name,
        parts=tuple(IdPart(name=name, value=value) for name, value in parts.items()),
        rule=f"{form}: {shape.rule.value}" if best is certain else form,
        certainty=Certainty.CERTAIN if best is certain else Certainty.POSSIBLE,
        also=() if best is certain else tuple(others),
    )


class _Fit(NamedTuple):
    """A form that an id fits, its parts, and the name of the application."""

    shape: IdShape
    parts: dict[str, str]
    name: str


def _fitting(subject: Subject) -> Iterator[_Fit]:
    """The forms that an id fits."""
    if subject.transactional_id is None or len(subject.transactional_id) > LONGEST:
        return
    has_offsets = CONSUMER_OFFSETS_TOPIC in subject.topics
    for shape, names, pattern in PATTERNS:
        if has_offsets and not shape.commits_offsets:
            continue
        match = pattern.fullmatch(subject.transactional_id)
        if match is not None:
            place = names.index(shape.name) + 1
            name = match[place]
            # A number alone names nothing: the text of the framework before it belongs to the name.
            whole = match.string[: match.end(place)] if name.isdecimal() else name
            yield _Fit(shape, dict(zip(names, match.groups(), strict=True)), whole)


def _is_certain(fit: _Fit, subject: Subject) -> bool:
    return _HOLDS[fit.shape.rule](fit.parts[fit.shape.name], subject)
