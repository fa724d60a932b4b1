"""The table of all metrics, for the registry, docs/metrics.md, and the tests of the alert rules and the dashboard.

Apart: docs and deployment tests use the table alone, and collector.py would have 800 lines with it.

Names have the prefix `txnwatch_` and base units. No label is a transactional id or a producer id, because their number
is unbounded; they are in the events. Labels with a topic and a partition exist only while that partition is pinned.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from typing import Final, NamedTuple

from txnwatch.state.abort.rules import RULE_OF_REFUSAL
from txnwatch.state.detection.open_transactions import OWNER_UNKNOWN, UNOWNED
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.model.completion_latency import BOUNDS_MS, Stage
from txnwatch.state.model.errors import SkipReason
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import Mismatch
from txnwatch.state.model.incident import ActionResult, Decision, IncidentStatus
from txnwatch.state.model.ownership import WITHOUT_OWNER
from txnwatch.state.model.transaction import COMPLETED_AS, TransactionState
from txnwatch.state.model.verdicts import RULE_OF

# What a metric is: its name, its type, its labels and its meaning.

NAMESPACE = "txnwatch"


class Kind(StrEnum):
    """The types of Prometheus metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric; `is_read` means that its value is computed at the scrape."""

    group: str
    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    is_read: bool = False
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name with its prefix, as a scrape has it."""
        return f"{NAMESPACE}_{self.name}"


# The table.

HEALTH, EVIDENCE, INCIDENTS = "Health of txnwatch", "Evidence", "Incidents and their delivery"
OPEN, COORDINATOR = "Open transactions", "Latencies of the coordinators, from their log"
DETECTION_S = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
BATCH_S = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
STAGE_S = tuple(bound / 1000 for bound in BOUNDS_MS)
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

METRICS: tuple[Metric, ...] = (
    Metric(HEALTH, "up", _G, (), "1 if the last evaluated barrier is younger than 15 s, else 0", is_read=True),
    Metric(HEALTH, "build_info", _G, ("version", "cluster_id", "cluster_name"), "always 1", is_read=True),
    Metric(
        HEALTH,
        "speaks",
        _G,
        ("group",),
        "1 if this watcher publishes events (to the topic, to Redis and by push), else 0; of the watchers of the same "
        "topics one does. group is their consumer group, whose lease decides",
    ),
    Metric(
        HEALTH,
        "exposures",
        _G,
        ("severity",),
        "findings of the audit by severity (critical, warn, info), at its last repetition; `run` repeats it once "
        "an hour, "
        "without the checks that read the coordinators' log",
    ),
    Metric(
        HEALTH,
        "ready",
        _G,
        (),
        "1 once the watcher is ready, else 0; it stays 1 until the process ends, so it does not show whether barriers "
        "are evaluated now (txnwatch_up does). The watcher is ready when it has read every partition of the "
        "coordinators' log to its end and a census was taken. It does not wait for further partitions if none "
        "was completed for 30 s, and it waits for the census at most 30 s. "
        "txnwatch_unproven_partitions then counts the missing partitions",
    ),
    Metric(
        HEALTH,
        "page_up",
        _G,
        (),
        "1 while the page is kept up to date, else 0. After an error of the page the watch and the metrics go on, and "
        "the page is started again after a minute",
        is_read=True,
    ),
    Metric(
        HEALTH,
        "last_barrier_timestamp_seconds",
        _G,
        (),
        "when the ends of the data partitions were listed for the last evaluated barrier",
        is_read=True,
    ),
    Metric(
        HEALTH,
        "source_lag_seconds",
        _G,
        (),
        "how far txnwatch is behind the cluster: the time since the newest listing whose ends were all reached",
        is_read=True,
    ),
    Metric(
        HEALTH,
        "source_lag_offsets",
        _G,
        (),
        "offsets that are listed and not read yet, all partitions together",
        is_read=True,
    ),
    Metric(
        HEALTH,
        "watched_partitions",
        _G,
        ("log",),
        "partitions that txnwatch reads, without those that only a census watches, by log: data (the topics) and "
        "coordinator (`__transaction_state`)",
        is_read=True,
    ),
    Metric(
        HEALTH,
        "beyond_budget_partitions",
        _G,
        (),
        "partitions that are looked at where they stand, and not scanned, because they write more than "
        "`--max-bytes-per-second` allows: no stray writes are found there",
        is_read=True,
    ),
    Metric(HEALTH, "batches_total", _C, (), "completed micro-batches"),
    Metric(
        HEALTH,
        "batch_duration_seconds",
        _H,
        (),
        "duration of a micro-batch, from the listing of the data partitions' ends until its output is processed",
        buckets=BATCH_S,
    ),
    Metric(
        HEALTH,
        "last_batch_phase_seconds",
        _G,
        ("phase",),
        "time that Spark spent in each phase of the last micro-batch; triggerExecution is the total",
        is_read=True,
    ),
    Metric(HEALTH, "query_starts_total", _C, (), "starts of the streaming query; more than one is a restart"),
    Metric(
        HEALTH,
        "refused_connections_total",
        _C,
        (),
        "connections to the HTTP port that were closed because too many were open: new ones, or idle ones for new ones",
    ),
    Metric(
        HEALTH,
        "broker_clock_offset_seconds",
        _G,
        ("broker",),
        "a coordinator's clock minus this machine's: the middle of the range that its records in `__transaction_state` "
        "allow; absent if they do not give both a lower and an upper bound",
    ),
    Metric(
        HEALTH,
        "broker_clock_uncertainty_seconds",
        _G,
        ("broker",),
        "maximum error of `txnwatch_broker_clock_offset_seconds`, in either direction",
    ),
    Metric(
        EVIDENCE,
        "coordinator_view",
        _G,
        ("view",),
        "1 for the coordinator view in use (log, api or none), 0 for the other two",
    ),
    Metric(
        EVIDENCE,
        "unproven_partitions",
        _G,
        ("log",),
        "partitions about which the last barrier proves nothing, because they are not listed, are not read to their "
        "ends, are hidden from this user, or were not described by their leaders (not since the start, or not in the "
        "last 30 s). With log=coordinator the value is at least 1 if there is open data and no broker shows the "
        "coordinators' log",
    ),
    Metric(EVIDENCE, "unread_gaps", _G, (), "partitions with a listed range that could not be read yet"),
    Metric(
        EVIDENCE,
        "undescribed_partitions",
        _G,
        (),
        "partitions whose leaders did not describe their producers in the last census that asked them",
    ),
    Metric(
        EVIDENCE,
        "census_rounds_total",
        _C,
        ("result",),
        "censuses; the result is complete if every leader answered, else incomplete",
    ),
    Metric(
        EVIDENCE,
        "unproven_transactions",
        _G,
        ("why",),
        "open transactions about which the last barrier proved nothing, by reason (why)",
    ),
    Metric(
        EVIDENCE,
        "partition_notices_total",
        _C,
        ("kind",),
        "ranges of partitions that could not be read (gap), can never be read (lost) or were truncated (truncated); "
        "partitions that were deleted (deleted), or that a transaction names and this user may not describe (hidden)",
    ),
    Metric(
        EVIDENCE,
        "throttled_seconds_total",
        _C,
        ("request",),
        "time for which brokers throttled txnwatch by a quota, by type of request (Fetch: consumer_byte_rate)",
    ),
    Metric(EVIDENCE, "decode_failures_total", _C, (), "batches or records that txnwatch could not decode"),
    Metric(
        EVIDENCE,
        "view_mismatches_total",
        _C,
        ("mismatch",),
        "transactions for which a census contradicts the state of txnwatch: open at the leader only (open), or closed "
        "at the leader only (closed)",
    ),
    Metric(
        INCIDENTS,
        "open_incidents",
        _G,
        ("verdict", "severity", "owner"),
        "incidents that are open now; `owner` is a team of the table of owners, or none",
    ),
    Metric(
        INCIDENTS,
        "events_total",
        _C,
        ("verdict", "status"),
        "incident events of this watcher, also while the events topic is away. It does not rise while another watcher "
        "publishes, so sum it over the watchers",
    ),
    Metric(
        INCIDENTS,
        "detection_latency_seconds",
        _H,
        ("verdict",),
        "time from the first reading that shows the problem to the opened incident, of incidents that this watcher has "
        "published",
        buckets=DETECTION_S,
    ),
    Metric(
        INCIDENTS,
        "confirmations_total",
        _C,
        ("verdict", "answer"),
        "fresh reads of candidates before an incident is opened, by answer: confirmed, refuted or unknown",
    ),
    Metric(
        INCIDENTS,
        "abort_decisions_total",
        _C,
        ("decision", "result"),
        "decisions about aborts that this watcher has published. For the decision abort, the label result has the "
        "result of the marker; it is none until the marker is written. For refused it has the refusal. For dry_run it "
        "is always none",
    ),
    Metric(
        INCIDENTS,
        "events_passed_over_total",
        _C,
        ("why",),
        "records of the events topic that were read and are not events of txnwatch",
    ),
    Metric(
        INCIDENTS,
        "sink_waiting_events",
        _G,
        ("sink",),
        "events that are not yet delivered to the sink; 0 for a push of a watcher that does not publish",
    ),
    Metric(INCIDENTS, "sink_failures_total", _C, ("sink",), "failed deliveries; each is retried"),
    Metric(INCIDENTS, "sink_delivered_events_total", _C, ("sink",), "events that the sink has taken"),
    Metric(
        INCIDENTS,
        "sink_refused_events_total",
        _C,
        ("sink",),
        "events that are not sent any more, because the sink has refused them three times (400, 413, 415 or 422)",
    ),
    Metric(
        INCIDENTS,
        "sink_lag_seconds",
        _G,
        ("sink",),
        "age of the oldest event that is not yet delivered to the sink, at the last micro-batch; 0 if there is none",
    ),
    Metric(
        INCIDENTS,
        "sink_stopped",
        _G,
        ("sink",),
        "1 if the sink wants no more events (it has answered 410), until the next start; else 0",
    ),
    Metric(
        OPEN,
        "transactions",
        _G,
        ("state",),
        "producer ids with an open transaction, by its state; unowned: producer ids with open data that no live "
        "transaction owns; owner_unknown: all producer ids with open data, if the coordinators' log is not used",
    ),
    Metric(
        OPEN,
        "oldest_open_transaction_seconds",
        _G,
        (),
        "age of the oldest transaction that has been open for 2 s or is in Prepare*; 0 if there is none",
        is_read=True,
    ),
    Metric(
        OPEN,
        "lso_pinned_seconds",
        _G,
        ("topic", "partition"),
        "how long the transaction that holds the partition's last stable offset has been open; present only if it "
        "has been open for 2 s or is in Prepare*",
        is_read=True,
    ),
    Metric(
        OPEN,
        "hidden_records",
        _G,
        ("topic", "partition"),
        "offsets from the last stable offset to the partition's end, which read_committed consumers do not receive; "
        "only for scanned topics",
        is_read=True,
    ),
    Metric(
        COORDINATOR,
        "transaction_state_append_seconds",
        _H,
        ("target_state",),
        "time from the append of the Prepare* record to its commit (all in-sync replicas have it)",
        is_read=True,
        buckets=STAGE_S,
    ),
    Metric(
        COORDINATOR,
        "transaction_marker_completion_seconds",
        _H,
        ("target_state",),
        "time from the commit of the Prepare* record to the append of the Complete* record: all markers are written "
        "then",
        is_read=True,
        buckets=STAGE_S,
    ),
    Metric(
        COORDINATOR,
        "transaction_completion_seconds",
        _H,
        ("target_state",),
        "time from the append of the Prepare* record to the append of the Complete* record",
        is_read=True,
        buckets=STAGE_S,
    ),
    Metric(
        COORDINATOR,
        "transaction_failover_completion_seconds",
        _H,
        ("target_state",),
        "time from the append of the Prepare* record to the append of the Complete* record, for transactions whose "
        "coordinator moved in between",
        is_read=True,
        buckets=STAGE_S,
    ),
    Metric(
        COORDINATOR,
        "transactions_pending_markers",
        _G,
        ("target_state",),
        "transactions in Prepare*: markers or the final append are outstanding",
    ),
    Metric(
        COORDINATOR,
        "oldest_pending_transaction_seconds",
        _G,
        (),
        "longest time for which a transaction has been in Prepare*; 0 if there is none",
        is_read=True,
    ),
)


# The values of the metrics' labels that are known beforehand: stages, states, verdicts, results and reasons.

STAGES = {
    Stage.APPEND: "transaction_state_append_seconds",
    Stage.MARKERS: "transaction_marker_completion_seconds",
    Stage.COMPLETION: "transaction_completion_seconds",
    Stage.FAILOVER: "transaction_failover_completion_seconds",
}
PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
# The values of the label `target_state` are the same in every family, also for a stage that ends at Prepare*.
COMPLETE_OF = {**COMPLETED_AS, **{state: state for state in COMPLETED_AS.values()}}
TARGETS = {stage: PREPARED if stage is Stage.APPEND else tuple(COMPLETED_AS.values()) for stage in Stage}
_NONE = "none"
# Series with labels that are known beforehand exist from the start: a rate needs a first sample of zero.
INITIAL_SERIES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "partition_notices_total": tuple((kind,) for kind in NoticeKind if kind is not NoticeKind.LEFT),
    "view_mismatches_total": tuple((mismatch,) for mismatch in Mismatch),
    "census_rounds_total": (("complete",), ("incomplete",)),
    "throttled_seconds_total": (("Fetch",),),
    "open_incidents": tuple((verdict, rule.severity, WITHOUT_OWNER) for verdict, rule in RULE_OF.items()),
    "events_total": tuple(product(RULE_OF, IncidentStatus)),
    "detection_latency_seconds": tuple((verdict,) for verdict in RULE_OF),
    "confirmations_total": tuple(product((verdict for verdict, rule in RULE_OF.items() if rule.is_read_again), Answer)),
    "abort_decisions_total": (
        *((Decision.ABORT, result) for result in (_NONE, *ActionResult)),
        (Decision.DRY_RUN, _NONE),
        *((Decision.REFUSED, refusal) for refusal, rule in RULE_OF_REFUSAL.items() if rule.is_published),
    ),
    "events_passed_over_total": tuple((why,) for why in SkipReason),
    "transactions": tuple((state,) for state in (TransactionState.ONGOING, *PREPARED, UNOWNED, OWNER_UNKNOWN)),
    "transactions_pending_markers": tuple((COMPLETED_AS[state],) for state in PREPARED),
}
