"""The automatic abort: ends hanging transactions one at a time, with an event before and after each marker.

Law:
  * It acts only on what this process has found itself (sinks/incidents/own_findings.py), and reads that again right
    before it acts. Events are not a source.
  * It writes only a marker that a fresh read and state/abort/rules.py allow.
  * An event that announces the marker is on the topic before the marker is written. A read and an event with the result
    follow.
  * Only that read counts, because Kafka answers NONE also to a marker without a transaction. The marker that closed the
    transaction may be another writer's, of the other kind.
  * If the process dies in between, an `abort` without a result remains. The next process reads the partition again and
    publishes what the log shows. It cannot know who wrote the marker.
  * Only the holder of the lease acts. The lease is checked again right before the marker.
  * Refusals are published too, each reason once per incident.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from txnwatch.sinks.abort.manual import MarkerProtocol, read_after
from txnwatch.sinks.incidents.confirm import confirm_spans
from txnwatch.sinks.incidents.ledger import CONFIRM_BUDGET_MS, Ledger
from txnwatch.sinks.incidents.own_findings import Marked, read_anew
from txnwatch.state.abort.case import AbortPolicy, Case, ProvenHang, Usage
from txnwatch.state.abort.protocol import (
    Breaker,
    action,
    is_left_undecided,
    is_left_without_result,
    is_unproven_for_long,
    markers_last_hour,
    outdated,
    recovered,
    trip_by_refusal,
    trip_by_result,
)
from txnwatch.state.abort.rules import RULE_OF_REFUSAL, AbortSpec, Refused, decide_abort, objection
from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.model.incident import Decision, IncidentEvent, Refusal, updated
from txnwatch.state.model.ports import Lease, Log
from txnwatch.state.model.values import NO_ATTEMPT, Attempts, DurationMs, TimestampMs, lease_group
from txnwatch.state.model.verdicts import RULE_OF

OFF, ON = "off", "on"
MARKERS_AT_A_TIME = 5
Tries = dict[str, Attempts]  # by incident


@dataclass(slots=True)
class AutoAbort:
    """Decides about open incidents, before and after every micro-batch of the ledger.

    Attributes:
        mode: off, dry-run or on.
        lease: None if the mode is off.
        instance: this instance's name in events; the same after a restart.
        log: receives messages for the operator that are not events.
        counts: decisions, for the metrics.
    """

    mode: str
    policy: AbortPolicy
    cooldown_ms: DurationMs
    ledger: Ledger
    lease: Lease | None
    instance: str
    now_ms: Callable[[], TimestampMs]
    log: Log = logging.getLogger("txnwatch.abort")  # noqa: RUF009 - one object by design
    counts: Counter[str] = field(default_factory=Counter)
    _published: dict[str, set[str]] = field(default_factory=dict)
    _tries: Tries = field(default_factory=dict)
    _read_tries: Tries = field(default_factory=dict)
    _published_markers: set[Marked] = field(default_factory=set)
    _unproven: dict[str, TimestampMs] = field(default_factory=dict)
    _breaker: Breaker | None = None
    _idle_since_ms: TimestampMs | None = None
    _problem: str | None = None

    def recover(self) -> None:
        """Publishes the results of markers that were announced without one.

        Call it before each batch of the ledger, so that the result is published before the end.
        """
        left = [
            one
            for one in _of_a_watch(self.ledger.open_incidents)
            if is_left_without_result(one.action, self.instance, self.now_ms())
        ]
        self._read_tries = {one.incident_id: self._read_tries.get(one.incident_id, NO_ATTEMPT) for one in left}
        for incident in left:
            if self._is_due(self._read_tries, incident):
                self._later(self._read_tries, incident)
                self._publish_result_from_log(incident)

    def on_batch(self) -> None:
        """Decides about every open incident that is due; at most `MARKERS_AT_A_TIME` markers per batch."""
        if self.mode == OFF or self.lease is None:
            return
        proven = self.ledger.proven()
        is_held = self.lease.is_held()
        self._report_problem(self.lease.problem)
        if not is_held:
            if self.lease.problem is None:
                self._watch_the_holder(proven)
            return
        self._idle_since_ms = None
        self._published_markers = self._markers_on_topic()
        self._forget({incident.incident_id for incident, _ in proven})
        written = 0
        for incident, evidence in proven:
            if self._is_due(self._tries, incident):
                written += self._decide(incident, evidence)
            if written == MARKERS_AT_A_TIME:
                break
        self._refuse_unproven({incident.incident_id for incident, _ in proven})

    def _report_problem(self, problem: str | None) -> None:
        """Warns once if this instance cannot ask for the lease."""
        if problem is not None and problem != self._problem:
            self.log.warning(f"this instance aborts nothing automatically: {problem}")
        self._problem = problem

    def _watch_the_holder(self, proven: list[tuple[IncidentEvent, ProvenHang]]) -> None:
        """Warns if another member holds the lease and decides nothing. Anyone who may join the group can do that."""
        now_ms = self.now_ms()
        left = [
            one
            for one, evidence in proven
            if is_left_undecided(one.action, evidence.since_ms, self.policy.after_ms, now_ms)
        ]
        if not left:
            self._idle_since_ms = None
        elif self._idle_since_ms is None:
            self._idle_since_ms = now_ms
            self.log.warning(
                f"{len(left)} hanging transactions wait for a decision, but another member of the lease's "
                "consumer group holds the lease and publishes no decision: is it an instance of txnwatch?"
            )

    def _refuse_unproven(self, proven: set[str]) -> None:
        """Refuses incidents that others have published and this process does not find; published after a while."""
        now_ms = self.now_ms()
        left = [one for one in _of_a_watch(self.ledger.open_incidents) if one.incident_id not in proven]
        self._unproven = {one.incident_id: self._unproven.get(one.incident_id, now_ms) for one in left}
        refused = objection(self._case(None, None))
        for one in left:
            if refused is not None and is_unproven_for_long(self._unproven[one.incident_id], now_ms):
                self._refuse(one, refused)

    def close(self) -> None:
        """Releases the lease."""
        if self.lease is not None:
            self.lease.close()

    def _forget(self, known: set[str]) -> None:
        kept = known | self._unproven.keys()
        self._published = {one: reasons for one, reasons in self._published.items() if one in kept}
        self._tries = {one: tried for one, tried in self._tries.items() if one in known}

    def _is_due(self, tries: Tries, incident: IncidentEvent) -> bool:
        return self.now_ms() >= tries.get(incident.incident_id, NO_ATTEMPT).due_ms

    def _later(self, tries: Tries, incident: IncidentEvent) -> None:
        tries[incident.incident_id] = tries.get(incident.incident_id, NO_ATTEMPT).next(self.now_ms())

    def _case(self, evidence: ProvenHang | None, found: SpanConfirmation | None) -> Case:
        now_ms = self.now_ms()
        if self._breaker is not None and not self._breaker.is_open(now_ms):
            self._breaker = None
            self.log.info("circuit breaker closed: the automatic abort continues")
        tripped = self._breaker.why if self._breaker is not None else None
        # A forged event on the topic can use up the budget, and never extend it.
        done = self.ledger.findings.marked | self._published_markers
        usage = Usage(markers_last_hour((at_ms for _, at_ms in done), now_ms), len(self.ledger.findings), tripped)
        return Case(evidence, found, self.policy, usage, now_ms)

    def _markers_on_topic(self) -> set[Marked]:
        decided = ((event.incident_id, event.action) for event in self.ledger.incidents if event.action is not None)
        return {(incident_id, done.at_ms) for incident_id, done in decided if done.decision is Decision.ABORT}

    def _decide(self, incident: IncidentEvent, evidence: ProvenHang) -> bool:
        """Decides about one incident. Returns whether a marker was sent."""
        refused = objection(self._case(evidence, None))
        if refused is not None:
            self._refuse(incident, refused)
            return False
        self._later(self._tries, incident)
        read_ms = self.now_ms()
        with self.ledger.admin.within(CONFIRM_BUDGET_MS):
            ((_, found),) = confirm_spans(self.ledger.admin, [evidence.candidate])
            evidence, found = read_anew(self.ledger.admin, evidence, found)
        decision = decide_abort(self._case(evidence, found))
        if isinstance(decision, Refused):
            self._refuse(incident, decision)
            why = trip_by_refusal(decision, found.answer, evidence.candidate.partition)
            if why is not None:
                self._trip(why)
            return False
        if self.mode != ON:
            self._publish_once(incident, Decision.DRY_RUN, None, "it would be aborted now", decision)
            return False
        return self._act(incident, found, decision, read_ms)

    def _act(self, incident: IncidentEvent, found: SpanConfirmation, spec: AbortSpec, read_ms: TimestampMs) -> bool:
        assert found.reading is not None
        now_ms, stable = self.now_ms(), found.reading.last_stable_offset
        begun = action(Decision.ABORT, self.instance, now_ms, spec=spec, stable_before=stable)
        protocol = MarkerProtocol(
            self.ledger.admin,
            self.ledger.publish_next,
            self.now_ms,
            obstacle=lambda: self._obstacle(read_ms),
            before_write=lambda: self.ledger.findings.marking(incident.incident_id, now_ms),
        )
        event, result = protocol.run(incident, spec, begun, found.reading)
        assert event.action is not None
        self.counts[f"aborts {event.action.result or f'refused ({event.action.refusal})'}"] += 1
        if result is None:
            return False
        if result.is_ours and result.closed_by is not None:
            self.ledger.wrote(incident, result.closed_by)
        why = trip_by_result(result, spec.marker.partition)
        if why is not None:
            self._trip(why)
        return True

    def _obstacle(self, read_ms: TimestampMs) -> str | None:
        """Why the marker must not be written now, after its announcement."""
        if self.lease is None or not self.lease.is_held_now():
            return "this instance no longer holds the lease"
        return outdated(read_ms, self.now_ms())

    def _refuse(self, incident: IncidentEvent, refused: Refused) -> None:
        if RULE_OF_REFUSAL[refused.refusal].is_published:
            self._publish_once(incident, Decision.REFUSED, refused.refusal, refused.detail)

    def _publish_once(
        self,
        incident: IncidentEvent,
        decision: Decision,
        refusal: Refusal | None,
        detail: str,
        spec: AbortSpec | None = None,
    ) -> None:
        """Publishes a decision that leads to no marker, once for each incident and reason."""
        published = self._published.setdefault(incident.incident_id, set())
        if not published and incident.action is not None:
            published.add(f"{incident.action.decision} {incident.action.refusal}")
        if f"{decision} {refusal}" in published:
            return
        published.add(f"{decision} {refusal}")
        self.counts[f"aborts {decision}" + (f" ({refusal})" if refusal is not None else "")] += 1
        decided = action(decision, self.instance, self.now_ms(), refusal=refusal, detail=detail, spec=spec)
        self.ledger.publish_next(updated(replace(incident, action=decided), self.now_ms()))

    def _trip(self, why: str) -> None:
        """Opens the circuit breaker until the cooldown is over, because more unexpected results may follow."""
        self._breaker = Breaker(self.now_ms() + self.cooldown_ms, why)
        self.counts["circuit breaker opened"] += 1
        pause = f"the automatic abort stops for {self.cooldown_ms / 1000:.0f} s"
        self.log.warning(f"circuit breaker open: {pause}: {why}")

    def _publish_result_from_log(self, incident: IncidentEvent) -> None:
        """Publishes the result of an announced marker, by the log alone; without one, it is read again after a pause.

        Of the announcement only the place is used. Its `end_before` is a claim.
        """
        assert incident.action is not None
        claimed = replace(incident, evidence=replace(incident.evidence, end_before=None))
        with self.ledger.admin.within(CONFIRM_BUDGET_MS):
            result = recovered(incident.action, read_after(self.ledger.admin, claimed, commit=False))
        if result is not None:
            self.ledger.publish_next(updated(replace(incident, action=result), self.now_ms()))


def _of_a_watch(incidents: Iterable[IncidentEvent]) -> list[IncidentEvent]:
    """Incidents about hanging transactions, without those of aborts by hand."""
    return [one for one in incidents if RULE_OF[one.verdict].needs_marker and not one.is_by_hand]


# The lease: the member of a consumer group that has partition 0 of the events topic may abort.
#
# The group's coordinator assigns a partition to one member. A member's own view may be outdated: a process that was
# stopped for a minute does not know that another member has the partition now. So it commits an offset right before it
# acts: the coordinator accepts that only from a member of the current generation.

SESSION_MS = 10_000
_MOST_POLLS = 100


class GroupLease:
    """A Lease over a consumer group."""

    problem: str | None = None

    def __init__(self, client_config: Mapping[str, Any], topic: str, cluster_id: str) -> None:
        self._topic, self._group = topic, lease_group(cluster_id)
        self._has_it = False
        self._polled_s = 0.0
        self._consumer = Consumer(
            {
                **client_config,
                "log_level": 2,
                "client.id": "txnwatch-abort",
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "session.timeout.ms": SESSION_MS,
                "socket.timeout.ms": SESSION_MS,
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)

    def is_held(self) -> bool:
        """See Lease. It also polls, to stay in the group; the records are ignored."""
        for _ in range(_MOST_POLLS):
            try:
                message = self._consumer.poll(0)
                if message is None:
                    break
                self._see(message)
            except KafkaException:
                self._has_it = False
                break
        was_away = self._polled_s and time.monotonic() - self._polled_s > SESSION_MS / 1000
        self._polled_s = time.monotonic()
        return self._has_it and not was_away

    def is_held_now(self) -> bool:
        """See Lease."""
        if not self._has_it:
            return False
        try:
            self._consumer.commit(offsets=[TopicPartition(self._topic, 0, 0)], asynchronous=False)
        except KafkaException:
            return False
        return self._has_it

    def close(self) -> None:
        """See Lease."""
        self._has_it = False
        self._consumer.close()

    def _see(self, message: Message) -> None:
        error = message.error()
        if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            self.problem = f"the right READ on the group {self._group} is missing"

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.problem = None
        self._has_it = any(partition.partition == 0 for partition in partitions)
        consumer.assign(partitions)
        consumer.pause(partitions)

    def _gone(self, _: Consumer, __: list[TopicPartition]) -> None:
        self._has_it = False
