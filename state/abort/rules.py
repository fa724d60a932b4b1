"""The table of refusals: all reasons not to end a hanging transaction, in the order of the checks.

Each row is a pure check of one case. The decision and its argument are below the table. The page docs/abort.md is
generated from the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.abort.fencing import may_begin_again
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.proven_hang import ProvenHang
from txnwatch.state.model.incident import ExpectedOutcome, Refusal
from txnwatch.state.model.ports import MarkerSpec
from txnwatch.state.model.transaction import ProducerIdentity, SpanData, epoch_text
from txnwatch.state.model.values import CoordinatorEpoch, TimestampMs
from txnwatch.state.text import cut


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts so far, and the state of the breaker; `tripped` is why the breaker is open, None if it is not."""

    markers_last_hour: int = 0
    open_hanging: int = 0
    tripped: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """All inputs of a decision.

    Attributes:
        evidence: None until this process has proven the hang itself.
        found: the fresh read, None if there was none yet.
    """

    evidence: ProvenHang | None
    found: SpanConfirmation | None
    policy: AbortPolicy
    usage: Usage
    now_ms: TimestampMs

    @property
    def proven(self) -> ProvenHang:
        """The evidence; only for rules after NOT_PROVEN_HERE, which checks that there is some."""
        assert self.evidence is not None
        return self.evidence

    @property
    def owners(self) -> frozenset[str]:
        """All transactional ids that the state or the coordinator has named as the owner."""
        witness = self.proven.witness
        views = (self.proven.candidate.view, witness.view if witness is not None else None)
        names = {view.transactional_id for view in views if view is not None}
        if self.found is not None and self.found.description is not None:
            names.add(self.found.description.transactional_id)
        return frozenset(names)


class RefusalRule(NamedTuple):
    """One row of the table: the check returns the detail of the refusal, or None.

    Attributes:
        needs_reading: whether it uses the fresh read; the other checks come first and need no request.
        is_published: whether an event reports the refusal; a refusal that passes by itself is not reported.
    """

    refusal: Refusal
    when: str
    what_to_do: str
    check: Callable[[Case], str | None]
    needs_reading: bool = False
    is_published: bool = True


def _not_proven_here(case: Case) -> str | None:
    return "this process has not proven the hang itself, and an event is no proof" if case.evidence is None else None


_NOT_COMMITTED = frozenset({ExpectedOutcome.ABORT, ExpectedOutcome.NONE})


def _commit_not_proven(case: Case) -> str | None:
    outcome = case.proven.outcome
    return f"the expected outcome is {outcome}" if case.policy.commit and outcome in _NOT_COMMITTED else None


def _was_commit(case: Case) -> str | None:
    outcome = case.proven.outcome
    if outcome != ExpectedOutcome.COMMIT or outcome in case.policy.outcomes or case.policy.commit:
        return None
    return "its commit was acknowledged to the client: an ABORT marker would destroy acknowledged data"


def _unknown(case: Case) -> str | None:
    outcome = case.proven.outcome
    if outcome in case.policy.outcomes or outcome == ExpectedOutcome.COMMIT:
        return None
    why = case.proven.doubt.text if case.proven.doubt is not None else "the data may have been committed"
    return f"the expected outcome is unknown: {why}"


def _topic_denied(case: Case) -> str | None:
    topic, policy = case.proven.candidate.partition.topic, case.policy
    if policy.deny_topics is not None and re.fullmatch(policy.deny_topics, topic):
        return f"topic {topic} matches the deny list {policy.deny_topics!r}"
    return None if re.fullmatch(policy.topics, topic) else f"topic {topic} does not match {policy.topics!r}"


def _id_denied(case: Case) -> str | None:
    policy, names = case.policy, sorted(case.owners)
    if not names:
        has_lists = policy.id_prefixes or policy.deny_id_prefixes
        return "the transactional id is not known, and a list of prefixes is set" if has_lists else None
    for name in names:
        if policy.deny_id_prefixes and name.startswith(policy.deny_id_prefixes):
            return f"{cut(name)} has a prefix of the deny list"
        if policy.id_prefixes and not name.startswith(policy.id_prefixes):
            return f"{cut(name)} has no prefix of the allow list"
    return None


def _too_early(case: Case) -> str | None:
    left_ms = case.proven.since_ms + case.policy.after_ms - case.now_ms
    return f"{left_ms} ms of abort_after_ms remain" if left_ms > 0 else None


def _breaker_open(case: Case) -> str | None:
    if case.usage.tripped is not None:
        return case.usage.tripped
    most, now = case.policy.breaker_incidents, case.usage.open_hanging
    if most is None or now <= most:
        return None
    return f"{now} transactions hang at once, more than {most}"


def _budget_exhausted(case: Case) -> str | None:
    most, now = case.policy.budget_per_hour, case.usage.markers_last_hour
    return f"{now} markers in the last hour, the limit is {most}" if most is not None and now >= most else None


def _incomplete(case: Case) -> str | None:
    reading = case.found
    if reading is None:
        return "there is no fresh read"
    if reading.answer is Answer.UNKNOWN:
        return reading.why
    if reading.unlisted is not None:
        return f"another transactional id may have this producer id, and own the data: {reading.unlisted}"
    return None


def _still_owned(case: Case) -> str | None:
    reading = case.found
    owner = reading.description if reading is not None else None
    if reading is None or owner is None:
        return None
    if reading.answer is Answer.REFUTED:
        return reading.why
    # The marker of this partition may count as written, but a new leader of the coordinators' log sends all again.
    if owner.is_ending and owner.producer_id == case.proven.row.producer_id:
        return f"{cut(owner.transactional_id)} is {owner.state}: its coordinator will write the markers"
    return None


def _already_over(case: Case) -> str | None:
    reading = case.found
    return reading.why if reading is not None and reading.answer is Answer.REFUTED else None


def _changed(case: Case) -> str | None:
    was, reading = case.proven.data, case.found
    row = reading.producer if reading is not None else None
    if row is None:
        return "the fresh read does not show the transaction"
    if was == row.data:
        return None
    return f"{_of_data(was)} when its outcome was found, {_of_data(row.data)} now"


def _of_data(data: SpanData) -> str:
    offset, epoch, sequence, timestamp_ms = data
    return f"start offset {offset}, epoch {epoch}, last sequence {sequence} and last timestamp {timestamp_ms}"


def _may_be_reused(case: Case) -> str | None:
    reading = case.found
    row = reading.producer if reading is not None else None
    if reading is None or row is None:
        return "the fresh read does not show the transaction"
    owner, data = reading.description, ProducerIdentity(row.producer_id, row.producer_epoch)
    if owner is None or not may_begin_again(owner, data):
        return None
    return (
        f"{cut(owner.transactional_id)} still has producer id {row.producer_id} and "
        f"{epoch_text(owner.producer_epoch)}: its next transaction may begin at any moment, and the "
        "marker would end it; fence the id first"
    )


def _never(_: Case) -> str | None:
    return None  # only the broker can refuse, when the marker is written


# Order: permanent refusals before those that pass, and checks without a read before checks that need one.
REFUSALS: tuple[RefusalRule, ...] = (
    RefusalRule(
        Refusal.NOT_PROVEN_HERE,
        "this process has not proven the hang itself: it knows the incident only from the events topic",
        "after a start, wait for two minutes; if the refusal remains, check who else writes to the events topic",
        _not_proven_here,
    ),
    RefusalRule(
        Refusal.OUTCOME_WAS_COMMIT,
        "`expected_outcome` is commit: the commit was acknowledged to the client",
        "complete the transaction with `txnwatch abort --result commit`; an abort destroys acknowledged data",
        _was_commit,
    ),
    RefusalRule(
        Refusal.OUTCOME_UNKNOWN,
        "`expected_outcome` is unknown: the transaction may have committed",
        "ask the application's owner whether its client was told that it is committed; if it was not, use `txnwatch "
        "abort`, and if it was, `txnwatch abort --result commit`: both ask before they write",
        _unknown,
    ),
    RefusalRule(
        Refusal.COMMIT_NOT_PROVEN,
        "only for `txnwatch abort --result commit`: the transaction was aborted, or there was none",
        "check the evidence of the incident; such data gets an ABORT marker",
        _commit_not_proven,
    ),
    RefusalRule(
        Refusal.TOPIC_DENIED,
        "the topic does not match `abort_topics`, or it matches `abort_deny_topics`",
        "use `txnwatch abort`, or change the lists",
        _topic_denied,
    ),
    RefusalRule(
        Refusal.TRANSACTIONAL_ID_DENIED,
        "the transactional id has no allowed prefix, or has a denied one; or txnwatch does not know the id, and a list "
        "is set",
        "use `txnwatch abort`, or change the lists",
        _id_denied,
    ),
    RefusalRule(
        Refusal.TOO_EARLY,
        "`abort_after_ms` has not passed since this process proved the hang",
        "wait",
        _too_early,
        is_published=False,
    ),
    RefusalRule(
        Refusal.BREAKER_OPEN,
        "(1) more than `abort_breaker_incidents` transactions hang at once, or (2) the circuit breaker was opened "
        "within the last `abort_breaker_cooldown_ms`",
        "find the cause; aborts are possible again (1) when at most `abort_breaker_incidents` transactions hang, (2) "
        "after that time, or after a restart",
        _breaker_open,
    ),
    RefusalRule(
        Refusal.BUDGET_EXHAUSTED,
        "`abort_budget_per_hour` markers were written within the last hour",
        "find out why so many transactions hang; the refusal ends when the markers are older than an hour",
        _budget_exhausted,
    ),
    RefusalRule(
        Refusal.EVIDENCE_INCOMPLETE,
        "the fresh read is incomplete: a broker, a leader or a right is missing",
        "see the detail; the automatic abort retries",
        _incomplete,
        needs_reading=True,
    ),
    RefusalRule(
        Refusal.STILL_OWNED,
        "(1) a live transaction of this producer id has the partition as a participant (this opens the circuit "
        "breaker), or (2) the transaction of the transactional id is in Prepare* with this producer id: a new leader "
        "of the coordinators' log sends all markers of that transaction again, and one may be for this partition",
        "wait: the coordinator writes the markers",
        _still_owned,
        needs_reading=True,
    ),
    RefusalRule(
        Refusal.ALREADY_OVER,
        "at the leader, the transaction is no longer open, or another one is open",
        "wait: the incident will be resolved",
        _already_over,
        needs_reading=True,
        is_published=False,
    ),
    RefusalRule(
        Refusal.CHANGED_SINCE_OPENED,
        "data was appended after the outcome was found: it may belong to another transaction",
        "find out who writes there, then use `txnwatch abort`",
        _changed,
        needs_reading=True,
    ),
    RefusalRule(
        Refusal.EPOCH_MAY_BE_REUSED,
        "the transactional id still has this producer id and epoch: the marker could end its next transaction",
        "fence the id: restart its application, or use `txnwatch fence`",
        _may_be_reused,
        needs_reading=True,
    ),
    RefusalRule(
        Refusal.NOT_AUTHORIZED,
        "the broker refuses the marker, because this user has no right to write it",
        "grant ALTER on the cluster (CLUSTER_ACTION before Kafka 3.8)",
        _never,
    ),
)
RULE_OF_REFUSAL: dict[Refusal, RefusalRule] = {rule.refusal: rule for rule in REFUSALS}


# Decides whether a hanging transaction may be ended, and by which marker, with the table above.
#
# A marker names a producer id and an epoch, but no transaction. Anything can happen between the last fresh read and the
# append, and speed does not protect the next healthy transaction. These three rules do:
#
# * Never against the outcome. This process found the outcome for the data of one moment. It applies to the data that is
#   aborted, because nothing was appended since (same start, epoch, last sequence and last timestamp at the leader). The
#   partition's log is read once more directly before the marker (state/incidents/confirm.py), and must give the
#   same outcome.
# * Never under an epoch that may be used again. The coordinator must have handed out a newer epoch, or another producer
#   id, or no longer know the id; then no transaction can begin under the marker's epoch. An idle client is not a dead
#   client: after a pause of an hour it continues under its epoch. With transaction.version 0 or 1, its next
#   transactions use this epoch too. From version 2 on each end raises the epoch, and the same rule detects that.
# * The leader compares epochs when it appends. The request has TransactionVersion 0, for which the leader accepts a
#   marker if its epoch is not older than the partition's. If a transaction of a newer epoch has joined the open data in
#   the meantime, the leader refuses the marker and no data is harmed.
#
# The marker is written only under the leader epoch of the reading: another leader may have another log.
#
# The marker's coordinator epoch is that of the producer's last marker on the partition, 0 if there is none. With a
# higher one, the leader would refuse the coordinator's own markers for ever.
#
# Pure: no I/O, no clock.


class AbortSpec(NamedTuple):
    """The marker to write."""

    marker: MarkerSpec


class Refused(NamedTuple):
    """No marker is written; `refusal` is the reason, `detail` explains it."""

    refusal: Refusal
    detail: str


def decide_abort(case: Case) -> AbortSpec | Refused:
    """The marker, or the first refusal of the table.

    Without a fresh read the answer is never a marker.
    """
    refused = objection(case)
    if refused is not None:
        return refused
    for rule in REFUSALS:
        detail = rule.check(case) if rule.needs_reading else None
        if detail is not None:
            return Refused(rule.refusal, detail)
    assert case.found is not None
    row = case.found.producer
    assert row is not None
    reading = case.found.reading
    return AbortSpec(
        MarkerSpec(
            partition=case.proven.candidate.partition,
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            coordinator_epoch=row.coordinator_epoch or CoordinatorEpoch(0),
            commit=case.policy.commit,
            leader_epoch=reading.leader_epoch if reading is not None else None,
        )
    )


def objection(case: Case) -> Refused | None:
    """The first refusal that needs no fresh read, or None."""
    for rule in REFUSALS:
        detail = None if rule.needs_reading else rule.check(case)
        if detail is not None:
            return Refused(rule.refusal, detail)
    return None
