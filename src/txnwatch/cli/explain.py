"""`txnwatch explain`: what holds a partition, an id or a group, or who gets a record; and the next command.

This file finds out whether the target is a partition or a record, and adds whom to call. explain_lookup.py finds what
else it is, and explanation.py has the texts.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from txnwatch.cli.command_origin import origin_of
from txnwatch.cli.compose import Question, searcher_of
from txnwatch.cli.explain_lookup import of_name
from txnwatch.cli.explain_names import (
    NO_FINDING,
    of_former_id,
    of_group_named,
    of_known_id,
)
from txnwatch.cli.explain_partitions import of_one_partition
from txnwatch.cli.explain_records import of_record
from txnwatch.cli.explain_words import NOT_ASKED, of_word, with_word
from txnwatch.cli.explanation import ALL_CLEAR, Explanation
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_events_flags,
    add_foreign_flag,
    add_output_flags,
    add_owners_flag,
    add_partition_flags,
    add_threshold_flags,
    ask,
    id64,
    kafka_text,
    show,
)
from txnwatch.cli.output import CommandAnswer, NotChecked
from txnwatch.cli.past_ids import GivenAdvice, advice_by_log, usual_advice
from txnwatch.state.incidents.event_builder import advice_about, topics_of
from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.ownership import Advice, IdMaker, Named, OwnerLookup, OwningTeam, Subject
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import PartitionOffset, TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy, Verdict
from txnwatch.state.telling.commands import Origin, origin_without_cluster
from txnwatch.state.telling.statements import SOONER_OF_FLINK, StatementKind, Told
from txnwatch.state.text import cut, quoted
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.hidden_topics import hidden_topics, why_not_shown


class _Words(argparse.Action):
    """Several words are one target: who types `payments 1` needs no quotation marks."""

    def __call__(self, *given: Any, **_: Any) -> None:  # noqa: ANN401 - as in argparse
        namespace, words = given[1:3]
        setattr(namespace, self.dest, " ".join(words) or None)


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="explain what holds a partition, a transactional id or a consumer group, or who gets a record",
        description="Explains which transaction holds a partition's last stable offset: since when, who owns it, "
        "whether it ends by itself, and what to do next. With an offset, it explains whether read_committed consumers "
        "get that record, and how its transaction ended. With a transactional id, it explains the state of that id, "
        "what it has open on any partition, and who ended its last transaction; with a consumer group, what the group "
        "waits for. It also tells of a marker of the last day that txnwatch or an administrator has written. A topic, "
        "a producer id, an id that has expired, an incident and the name of an error are explained too. Other forms of "
        "these names are understood: the runbook lists them.",
    )
    parser.add_argument(
        "target",
        nargs="*",
        action=_Words,
        type=kafka_text,
        metavar="TARGET",
        help="a partition (TOPIC-PARTITION), one record of it (TOPIC-PARTITION@OFFSET), a transactional id, a "
        "consumer group, a topic, a producer id, the id of an incident, or an error: its name, or a line of a client's "
        "log; several words are one target",
    )
    add_partition_flags(parser, "with --partition, the same as TOPIC-PARTITION", is_required=False)
    parser.add_argument("--offset", type=id64, help="an offset of that partition, the same as TOPIC-PARTITION@OFFSET")
    parser.add_argument(
        "--transactional-id",
        type=kafka_text,
        metavar="ID",
        help="a transactional id, even if it looks like TOPIC-PARTITION",
    )
    parser.add_argument(
        "--group", type=kafka_text, metavar="GROUP", help="a consumer group, even if a transactional id has this name"
    )
    add_connection_flags(parser, _is_no_word)
    add_threshold_flags(parser)
    add_foreign_flag(parser)
    add_owners_flag(parser)
    add_events_flags(parser)
    what = "the partition or the group is not all clear, the id is not idle, or the record is not visible"
    add_output_flags(parser, found_if=what, has_table=False)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Explains the target; a held partition, or an id that is not idle, counts as found (`--fail-on-found`)."""
    flags = [parsed.target, parsed.topic, parsed.transactional_id, parsed.group]
    if (
        sum(given is not None for given in flags) != 1
        or (parsed.topic is None) is not (parsed.partition is None)
        or (parsed.offset is not None and parsed.topic is None)
    ):
        raise ConfigError(
            "expected exactly one of TARGET, --topic with --partition (and --offset), --transactional-id, --group"
        )
    policy: DetectionPolicy = parsed.policy
    if parsed.bootstrap_server is None:
        return show(_without_cluster(parsed), parsed)
    try:
        return ask(parsed, lambda cluster: _answer(cluster, parsed, policy))
    except BrokerError as exc:
        if _is_no_word(parsed):
            raise
        return show(_without_cluster(parsed, exc), parsed)


def _is_no_word(parsed: argparse.Namespace) -> bool:
    """Whether the target needs a cluster; what an error means does not."""
    return parsed.target is None or of_word(_origin_of_flags(parsed), parsed.target) is None


def _origin_of_flags(parsed: argparse.Namespace) -> Origin:
    return origin_without_cluster(parsed.bootstrap_server, parsed.command_config)


def _without_cluster(parsed: argparse.Namespace, problem: BrokerError | None = None) -> CommandAnswer:
    """What the error means that the target has; `problem` is why the cluster did not answer."""
    explained = of_word(_origin_of_flags(parsed), parsed.target, NOT_ASKED)
    assert explained is not None
    missing = (NotChecked(f"what has the name {cut(parsed.target)}", str(problem)),) if problem is not None else ()
    return CommandAnswer("explain", "", Explanation, [explained], missing)


def _answer(cluster: Cluster, parsed: argparse.Namespace, policy: DetectionPolicy) -> CommandAnswer:
    searcher = searcher_of(cluster, policy, parsed.foreign_topics)
    question = Question(cluster, origin_of(cluster, parsed), searcher)
    record, partition = _record(cluster, parsed), _partition(question, parsed)
    if record is not None:
        explained = of_record(question, record)
    elif partition is not None:
        explained = of_one_partition(question, partition)
    else:
        explained = _of_name(question, parsed)
    explained = with_owner(explained, question.origin.owners, partial(_advise, question, explained))
    return CommandAnswer(
        command="explain",
        cluster_id=cluster.known.cluster_id,
        row_type=Explanation,
        rows=[explained],
        not_checked=tuple(NotChecked(what, why) for what, why in question.missing.items()),
        found=explained.state not in NO_FINDING,
    )


def _record(cluster: Cluster, parsed: argparse.Namespace) -> PartitionOffset | None:
    """The target as an offset of a partition that exists; None if the target is something else."""
    if parsed.topic is not None and parsed.offset is not None:
        return PartitionOffset(TopicPartition(parsed.topic, parsed.partition), parsed.offset)
    try:
        meant = PartitionOffset.parse(parsed.target or "")
    except ValueError:
        return None
    return meant if cluster.known.info(meant.partition) is not None else None


def _partition(question: Question, parsed: argparse.Namespace) -> TopicPartition | None:
    """The target as a partition, if that exists; None if the target is another name."""
    cluster = question.cluster
    if parsed.transactional_id is not None or parsed.group is not None:
        return None
    if parsed.topic is not None:
        named = TopicPartition(parsed.topic, parsed.partition)
        if cluster.known.info(named) is None:
            raise BrokerError(f"{named}: {why_not_shown(cluster, named.topic)}")
        return named
    try:
        meant = TopicPartition.parse(parsed.target)
    except ValueError:
        return None
    if cluster.known.info(meant) is not None:
        return meant
    if hidden_topics(cluster, [meant.topic]) and not isinstance(
        _described_now(question, parsed.target), DescribedTransaction
    ):
        raise BrokerError(f"{meant}: {why_not_shown(cluster, meant.topic)}")
    return None


def _of_name(question: Question, parsed: argparse.Namespace) -> Explanation:
    """Explains a transactional id or, if there is none of this name, whatever else has it."""
    if parsed.group is not None:
        explained = of_group_named(question, parsed.group)
        if explained is None:
            why = "; ".join(question.missing.values()) or "no broker lists this group"
            raise BrokerError(f"consumer group {cut(parsed.group)}: {why}")
        return explained
    name = parsed.transactional_id or parsed.target
    now = _described_now(question, name)
    if parsed.transactional_id is None:
        return of_name(question, name, now)
    former = of_former_id(question, name) if isinstance(now, UnknownTransactionalId) else None
    return former or with_word(of_known_id(question, name), name)  # which raises the coordinator's error


def _described_now(question: Question, name: str) -> TransactionDescription:
    """What its coordinator knows of a transactional id; an id may look like a partition."""
    return ClusterAdmin(question.cluster).describe_transactions([name])[name]


# Whom to call, what has made the transactional id, and what to know before it is ended: the same for every target.


def with_owner(
    explained: Explanation,
    owners: OwnerLookup,
    advise: Callable[[Advice], GivenAdvice] = usual_advice,
) -> Explanation:
    """The explanation with all owners that the table has for it; `advise` has the text of an advice.

    An advice removes the commands that end the transaction: `explain` must not suggest what loses data.
    """
    named = owners.of(_subject(explained))
    topics = {} if named.owner is not None else _owners_of_topics(explained, owners)
    if len({owner.team for owner in topics.values()}) == 1:  # of a transaction that holds several partitions
        named = named._replace(owner=next(iter(topics.values())))
    advice = _advice(explained, named.application)
    given = advise(advice) if advice is not None else None
    is_held_back, told = advice is not None and explained.state != Verdict.HANGING, explained.told
    if given is not None:
        kept = [
            statement
            for statement in told
            if not is_held_back or statement.kind is not StatementKind.NEXT or statement.command is None
        ]
        has_step = any(statement.kind is StatementKind.NEXT for statement in kept)
        step = [Told(StatementKind.NEXT, SOONER_OF_FLINK)] if given.is_usual and not has_step else []
        told = (Told(StatementKind.SAFE, given.text), *kept, *step)
    return replace(
        explained,
        owner=named.owner.team if named.owner is not None else None,
        contact=named.owner.contact if named.owner is not None else None,
        application=named.application.text if named.application is not None else None,
        next=None if is_held_back else explained.next,
        told=told,
        text=(*explained.text, *_lines(explained, named, given, topics), *_groups(explained, owners)),
    )


def _advise(question: Question, explained: Explanation, advice: Advice) -> GivenAdvice:
    """The text of an advice; the log may show that it does not help."""
    name = explained.transactional_id
    if name is not None and explained.state != Verdict.HANGING:
        now = _described_now(question, name)
        if isinstance(now, DescribedTransaction):
            return advice_by_log(question.cluster, advice, now)
    return usual_advice(advice)


def _subject(explained: Explanation) -> Subject:
    topics = frozenset(topics_of(explained.partitions)) | ({explained.topic} if explained.topic is not None else set())
    groups = frozenset((*explained.affected_groups, *explained.waiting_groups))
    return Subject(explained.transactional_id, explained.topic, topics, groups)


def _owners_of_topics(explained: Explanation, owners: OwnerLookup) -> dict[str, OwningTeam]:
    """The owners of the topics that a transaction holds."""
    owner_by_topic = {topic: owners.owner(Subject(None, topic)) for topic in topics_of(explained.partitions)}
    return {topic: owner for topic, owner in owner_by_topic.items() if owner is not None}


def _advice(explained: Explanation, application: IdMaker | None) -> Advice | None:
    is_hanging = explained.state == Verdict.HANGING
    is_undecided = (
        explained.expected_outcome == ExpectedOutcome.UNKNOWN
        if is_hanging
        else explained.transaction_state == TransactionState.ONGOING
    )
    return advice_about(application) if is_undecided else None


def _lines(
    explained: Explanation, named: Named, advice: GivenAdvice | None, topics: Mapping[str, OwningTeam]
) -> Iterator[str]:
    if named.owner is not None:
        whom, how = _whom_to_call(named.owner), named.owner.found_by.replace("_", " ")
        yield (
            f"Its owner is {whom}: found by the {how}."
            if explained.state == ALL_CLEAR
            else (f"Call {whom}: found by the {how}.")
        )
    else:
        yield from (f"Call {_whom_to_call(owner)} about topic {topic}." for topic, owner in topics.items())
    if named.application is not None:
        yield f"Transactional id {quoted(explained.transactional_id or '')}: {named.application.text}."
    if advice is not None:
        yield advice.text


def _whom_to_call(owner: OwningTeam) -> str:
    return f"{owner.whom_to_call}, {owner.url}" if owner.url is not None else owner.whom_to_call


def _groups(explained: Explanation, owners: OwnerLookup) -> Iterator[str]:
    for group_id in dict.fromkeys((*_itself(explained), *explained.affected_groups, *explained.waiting_groups)):
        owner = owners.of_group(group_id)
        if owner is not None:
            yield f"Group {cut(group_id)}: {_whom_to_call(owner)}."


def _itself(explained: Explanation) -> tuple[str, ...]:
    return (explained.group_id,) if explained.group_id is not None else ()
