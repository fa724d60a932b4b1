"""`txnwatch explain` for transactional ids and producer ids: of now, and of those that have expired."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from txnwatch.cli.compose import Question
from txnwatch.cli.explain_aborts import AbortsOf, with_past_abort
from txnwatch.cli.explain_groups import with_groups_behind
from txnwatch.cli.explanation import Explanation, end_text, of_id, of_span, open_in
from txnwatch.cli.past_ids import former_owner, former_text, participants_of, place_of, tombstone_of
from txnwatch.state.evidence.past_ends import PastEnd, past_ends
from txnwatch.state.evidence.screening import FOREIGN, is_foreign
from txnwatch.state.incidents.event_builder import explain_id
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.transaction import DescribedTransaction, NotDescribed, TransactionDescription
from txnwatch.state.model.values import ProducerId, TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.log.coordinator_log import LogRecord, history_of, read_records, read_views
from txnwatch.streaming.search.described_id import described_with_log
from txnwatch.streaming.source.lister import hidden_of

EXPIRED = "expired"
_INT64 = (1 << 63) - 1


def described_now(question: Question, name: str) -> TransactionDescription:
    """What its coordinator knows of a transactional id; an id may look like a partition."""
    return ClusterAdmin(question.cluster).describe_transactions([name])[name]


def of_known_id(question: Question, transactional_id: str) -> Explanation:
    """Explains an id that its coordinator has.

    Raises:
        BrokerError: the coordinator did not answer, or does not know the id.
    """
    cluster, missing, foreign_topics = question.cluster, question.missing, question.searcher.foreign_topics
    known = described_with_log(cluster, transactional_id)
    described, past = known.described, past_ends(history_of(known.records))
    if known.problem is not None:
        missing["the coordinators' log"] = known.problem
    hidden = hidden_of(cluster, [described], foreign_topics=foreign_topics)
    missing.update({what: str(why) for what, why in hidden.items()})
    held = set(described.partitions)
    if not described.is_live:
        logs = read_views(cluster, [described.producer_id])
        view = logs.views.get(described.producer_id)
        if view is None:  # the part that was not read may have its last participants
            missing.update({str(log): why for log, why in logs.problems.items()})
        held |= view.participants if view is not None else frozenset()
        held = _without_foreign(question, held)
    readings = ClusterAdmin(cluster).read_partitions(sorted(held))
    question.note_unread(readings.values())
    found = question.searcher.judge(described)
    missing.update(found.not_checked)
    explained = of_id(question.origin, known, readings.values(), wall_clock_ms(), found, past)
    explained = with_groups_behind(question, explained, described.producer_id, readings.values())
    return with_past_abort(question, explained, _aborts(transactional_id, described.producer_id, held, past))


def _aborts(name: str, producer_id: ProducerId, held: Iterable[TopicPartition], ends: Sequence[PastEnd]) -> AbortsOf:
    """The aborts of open data of an id, also under a producer id that it had before."""

    def is_wanted(event: IncidentEvent) -> bool:
        return event.transactional_id == name or event.producer_id == producer_id

    return AbortsOf(is_wanted, sorted(held), producer_id, ends)


def _without_foreign(question: Question, held: set[TopicPartition]) -> set[TopicPartition]:
    foreign = {one for one in held if is_foreign(one.topic, question.searcher.foreign_topics)}
    question.missing.update({str(partition): FOREIGN for partition in foreign})
    return held - foreign


def of_former_id(question: Question, transactional_id: str) -> Explanation | None:
    """Explains an id that its coordinator does not know; None if the log does not name it either."""
    records, problem = read_records(question.cluster, transactional_id)
    if problem is not None:
        question.missing["the coordinators' log"] = problem
    if not records:
        return None
    last = next((record for record in reversed(records) if record.value is not None), None)
    ends = past_ends(history_of(records))
    explained = Explanation(
        target=transactional_id,
        state=EXPIRED,
        transactional_id=transactional_id,
        producer_id=last.value.producer_id if last is not None and last.value is not None else None,
        since_ms=records[-1].timestamp_ms,
        text=(_gone(transactional_id, records), *map(end_text, ends[-1:])),
    )
    if last is None or last.value is None:
        return explained
    producer_id, held = last.value.producer_id, _without_foreign(question, participants_of(records))
    explained = _with_open_data(question, explained, producer_id, held)
    return with_past_abort(question, explained, _aborts(transactional_id, producer_id, held, ends))


def _gone(transactional_id: str, records: list[LogRecord]) -> str:
    tombstone = tombstone_of(records)
    gone = f"{transactional_id}: no coordinator has this transactional id any more"
    if tombstone is None:
        return f"{gone}; its last record is at {place_of(records[-1])}."
    return f"{gone}: it has expired (transactional.id.expiration.ms). Its tombstone is at {place_of(tombstone)}."


def _with_open_data(
    question: Question, explained: Explanation, producer_id: ProducerId, partitions: set[TopicPartition]
) -> Explanation:
    """Adds what its producer has open on the partitions that the log names."""
    shown = sorted(one for one in partitions if question.cluster.known.info(one) is not None)
    found = question.searcher.search(shown)
    question.note_unread(found.readings.values())
    spans = [span for span in open_in(found) if span.producer_id == producer_id]
    had = f"It had producer id {producer_id}."
    if not spans:
        where = f" on {', '.join(map(str, shown))}" if shown else ""
        text = (*explained.text, f"{had} Nothing of it is open{where}. Its application may start again at any time.")
        return replace(explained, text=text)
    why = of_span(question.origin, spans[0], found, wall_clock_ms())
    return replace(why, target=explained.target, text=(*explained.text, had, *why.text))


def of_producer_id(question: Question, text: str) -> Explanation | None:
    """Explains a producer id by its transactional id; None if the text is no number, or nobody has or had it.

    Raises:
        BrokerError: a coordinator did not answer.
    """
    if not text.isascii() or not text.isdigit() or int(text) > _INT64:
        return None
    producer_id = ProducerId(int(text))
    listing = ClusterAdmin(question.cluster).list_transactions([producer_id])
    question.missing.update({f"transactional ids of producer id {text}": str(why) for why in listing.problems})
    names = [row.transactional_id for row in listing.transactions if row.producer_id == producer_id]
    if names:
        explained = of_known_id(question, names[0])
        head = f"{text} is the producer id of transactional id {names[0]!r}."
        return replace(explained, target=text, text=(head, *explained.text))
    owner = former_owner(question.cluster, producer_id)
    if owner.problem is not None:
        question.missing["the coordinators' log"] = owner.problem
    if owner.transactional_id is None:
        return None
    head = former_text(producer_id, owner)
    if isinstance(owner.now, NotDescribed):
        raise BrokerError(f"transactional id {owner.transactional_id}: {owner.now.problem}")
    if isinstance(owner.now, DescribedTransaction):
        return _superseded(question, text, owner.now, head)
    former = of_former_id(question, owner.transactional_id)
    assert former is not None  # the log names it
    return replace(former, target=text, text=(head, *former.text))


def _superseded(question: Question, text: str, now: DescribedTransaction, head: str) -> Explanation:
    """A producer id that its transactional id has replaced by another one."""
    return Explanation(
        target=text,
        state="superseded",
        transactional_id=now.transactional_id,
        producer_id=ProducerId(int(text)),
        next=explain_id(question.origin, now.transactional_id),
        text=(head, "`txnwatch find-hanging` finds what is open under the former producer id."),
    )
