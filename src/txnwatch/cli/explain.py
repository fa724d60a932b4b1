"""`txnwatch explain`: what holds a partition, an id or a group, or who gets a record; and the next command.

This file finds out what the target is, and reads what a partition needs. explanation.py has the texts about partitions
and ids, explain_groups.py reads groups, explain_record.py one record, and explain_names.py ids and all other names.
"""

from __future__ import annotations

import argparse
import time
from functools import lru_cache, partial
from typing import Any

from txnwatch.cli.abort_texts import place_of_claim
from txnwatch.cli.compose import Question, searcher_of
from txnwatch.cli.explain_aborts import AbortsOf, read_published, with_past_abort
from txnwatch.cli.explain_groups import groups_around, with_waiting_groups
from txnwatch.cli.explain_names import NO_FINDING, of_former_id, of_group_named, of_known_id, of_name
from txnwatch.cli.explain_record import RecordTarget, of_record, record_target
from txnwatch.cli.explained_owner import with_owner
from txnwatch.cli.explanation import Explanation, of_partition
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
    origin_of,
)
from txnwatch.cli.output import CommandAnswer, NotChecked
from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.state.model.transaction import DescribedTransaction, TransactionDescription, UnknownTransactionalId
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.lister import hidden_topics, why_not_shown

_LOOKS, _PAUSE_S = 3, 0.3


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="explain what holds a partition, a transactional id or a consumer group, or who gets a record",
        description="Explains which transaction holds a partition's last stable offset: since when, who owns it, "
        "whether it ends by itself, and what to do next. With an offset, it explains whether read_committed consumers "
        "get that record, and how its transaction ended. With a transactional id, it explains the state of that id and "
        "who ended its last transaction; with a consumer group, what the group waits for. It also tells of a marker of "
        "the last day that txnwatch or an administrator has written. A topic, a producer id and "
        "an id that has expired are explained too.",
    )
    parser.add_argument(
        "target",
        nargs="?",
        type=kafka_text,
        metavar="TARGET",
        help="a partition (TOPIC-PARTITION), one record of it (TOPIC-PARTITION@OFFSET), a transactional id, a "
        "consumer group, a topic or a producer id",
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
    add_connection_flags(parser)
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
    return ask(parsed, lambda cluster: _answer(cluster, parsed, policy))


def _answer(cluster: Cluster, parsed: argparse.Namespace, policy: DetectionPolicy) -> CommandAnswer:
    searcher = searcher_of(cluster, policy, parsed.foreign_topics)
    published = lru_cache(partial(read_published, cluster, parsed))
    question = Question(cluster, origin_of(cluster, parsed), searcher, published=published)
    record, partition = _record(cluster, parsed), _partition(question, parsed)
    if record is not None:
        explained = _of_record(question, record)
    elif partition is not None:
        explained = _of_partition(question, partition)
    else:
        explained = _of_name(question, parsed)
    explained = with_owner(explained, question.origin.owners, partition)
    return CommandAnswer(
        command="explain",
        cluster_id=cluster.known.cluster_id,
        row_type=Explanation,
        rows=[explained],
        not_checked=tuple(NotChecked(what, why) for what, why in question.missing.items()),
        found=explained.state not in NO_FINDING,
    )


def _record(cluster: Cluster, parsed: argparse.Namespace) -> RecordTarget | None:
    """The target as an offset of a partition that exists; None if the target is something else."""
    if parsed.topic is not None and parsed.offset is not None:
        return RecordTarget(TopicPartition(parsed.topic, parsed.partition), parsed.offset)
    meant = record_target(parsed.target) if parsed.target is not None else None
    return meant if meant is not None and cluster.known.info(meant.partition) is not None else None


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


def _of_record(question: Question, record: RecordTarget) -> Explanation:
    explained = of_record(question, record)
    about = AbortsOf(lambda one: (one.producer_id, place_of_claim(one)) == (explained.producer_id, record.partition))
    return with_past_abort(question, explained, about)


def _of_partition(question: Question, partition: TopicPartition) -> Explanation:
    for look in range(_LOOKS):
        found = question.searcher.search([partition])
        reading = found.readings[partition]
        problem = reading.problem or ("no last stable offset" if reading.last_stable_offset is None else None)
        if problem is not None:
            raise BrokerError(f"{partition}: {problem}: its owner cannot be determined")
        explained = of_partition(question.origin, partition, found, wall_clock_ms())
        if explained.state != "unreplicated":
            break
        if look < _LOOKS - 1:
            time.sleep(_PAUSE_S)  # a transaction may have begun between the two answers of the leader
    question.missing.update({f"{span.partition} producer id {span.producer_id}": why for span, why in found.unproven})
    groups = groups_around(question, partition, found)
    explained = of_partition(question.origin, partition, found, wall_clock_ms(), groups)
    explained = with_waiting_groups(question, partition, explained)
    return with_past_abort(question, explained, AbortsOf(lambda one: place_of_claim(one) == partition, [partition]))


def _of_name(question: Question, parsed: argparse.Namespace) -> Explanation:
    """Explains a transactional id or, if there is none of this name, whatever else has it."""
    if parsed.group is not None:
        explained = of_group_named(question, parsed.group)
        if explained is None:
            why = "; ".join(question.missing.values()) or "no broker lists this group"
            raise BrokerError(f"consumer group {parsed.group}: {why}")
        return explained
    name = parsed.transactional_id or parsed.target
    now = _described_now(question, name)
    if isinstance(now, DescribedTransaction):
        return of_known_id(question, name)
    if parsed.transactional_id is None:
        return of_name(question, name, now)
    former = of_former_id(question, name) if isinstance(now, UnknownTransactionalId) else None
    return former or of_known_id(question, name)  # which raises the coordinator's error


def _described_now(question: Question, name: str) -> TransactionDescription:
    """What its coordinator knows of a transactional id; an id may look like a partition."""
    return ClusterAdmin(question.cluster).describe_transactions([name])[name]
