"""The table of all metrics, for the registry, docs/metrics.md, and the tests of the alert rules and the dashboard.

Names have the prefix `txnwatch_` and base units. No label is a transactional id or a producer id, because their number
is unbounded; they are in the events. Labels with a topic and a partition exist only while that partition is pinned.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from typing import Final, NamedTuple

from txnwatch.state.abort.results import ABORT, DRY_RUN, FAILED, REFUSED, STILL_OPEN, UNKNOWN, VERIFIED
from txnwatch.state.abort.rules import RULE_OF_REFUSAL
from txnwatch.state.detection.open_transactions import UNOWNED
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.model.completion_latency import BOUNDS_MS, Stage
from txnwatch.state.model.errors import PassedOver
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import Mismatch
from txnwatch.state.model.incident import OPENED, RESOLVED, UPDATED
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.verdicts import RULE_OF, Verdict

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


HEALTH, EVIDENCE, INCIDENTS = "Its own health", "Evidence", "Incidents and their delivery"
OPEN, COORDINATOR = "What is open", "The coordinator's work, from its log"
DETECTION_S = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)
BATCH_S = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0)
STAGE_S = tuple(bound / 1000 for bound in BOUNDS_MS)
STAGES = {
    Stage.APPEND: "transaction_state_append_seconds",
    Stage.MARKERS: "transaction_marker_completion_seconds",
    Stage.COMPLETION: "transaction_completion_seconds",
    Stage.FAILOVER: "transaction_failover_completion_seconds",
}
PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
TARGETS = {stage: PREPARED if stage is Stage.APPEND else tuple(COMPLETE.values()) for stage in Stage}
_NONE = "none"
# Series with labels that are known beforehand exist from the start: a rate needs a first sample of zero.
FROM_THE_START: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "partition_notices_total": tuple((kind,) for kind in NoticeKind if kind is not NoticeKind.LEFT),
    "view_mismatches_total": tuple((mismatch,) for mismatch in Mismatch),
    "census_rounds_total": (("complete",), ("incomplete",)),
    "throttled_seconds_total": (("Fetch",),),
    "open_incidents": tuple((verdict, rule.severity) for verdict, rule in RULE_OF.items()),
    "events_total": tuple(product(RULE_OF, (OPENED, UPDATED, RESOLVED))),
    "detection_latency_seconds": tuple((verdict,) for verdict in RULE_OF),
    "confirmations_total": tuple(product((each for each in RULE_OF if each is not Verdict.STRAY_WRITE), Answer)),
    "abort_decisions_total": (
        *((ABORT, result) for result in (_NONE, VERIFIED, STILL_OPEN, FAILED, UNKNOWN)),
        (DRY_RUN, _NONE),
        *((REFUSED, refusal) for refusal, rule in RULE_OF_REFUSAL.items() if rule.is_told),
    ),
    "events_passed_over_total": tuple((why,) for why in PassedOver),
    "transactions": tuple((state,) for state in (TransactionState.ONGOING, *PREPARED, UNOWNED)),
    "transactions_pending_markers": tuple((COMPLETE[state],) for state in PREPARED),
}
_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

METRICS: tuple[Metric, ...] = (
    Metric(HEALTH, "up", _G, (), "1 if a barrier was judged within the last 15 s, else 0", is_read=True),
    Metric(HEALTH, "build_info", _G, ("version", "cluster_id"), "always 1", is_read=True),
    Metric(
        HEALTH,
        "ready",
        _G,
        (),
        "1 once every partition of the coordinator's log has been read to its end, or some have and no more could be "
        "for half a minute; and a census was taken, or none came for as long; what is unproven has metrics of its own",
    ),
    Metric(
        HEALTH,
        "last_barrier_timestamp_seconds",
        _G,
        (),
        "when the data partitions' ends of the last judged barrier were in hand",
        is_read=True,
    ),
    Metric(
        HEALTH,
        "source_lag_seconds",
        _G,
        (),
        "age of the last judged listing that was read to its ends wherever a limit applies: how old the picture is",
        is_read=True,
    ),
    Metric(
        HEALTH,
        "source_lag_offsets",
        _G,
        (),
        "offsets listed and not read yet, all partitions together; bytes cannot be known without reading them",
        is_read=True,
    ),
    Metric(
        HEALTH,
        "watched_partitions",
        _G,
        ("log",),
        "partitions that are read: of topics (data), of `__transaction_state` (coordinator)",
        is_read=True,
    ),
    Metric(HEALTH, "batches_total", _C, (), "micro-batches that went through"),
    Metric(
        HEALTH,
        "batch_duration_seconds",
        _H,
        (),
        "micro-batches, from the data partitions' ends in hand to everything told",
        buckets=BATCH_S,
    ),
    Metric(
        HEALTH,
        "last_batch_phase_seconds",
        _G,
        ("phase",),
        "where Spark spent the last micro-batch; triggerExecution is the whole of it",
        is_read=True,
    ),
    Metric(HEALTH, "query_starts_total", _C, (), "starts of the streaming query; more than one is a restart"),
    Metric(
        HEALTH,
        "broker_clock_offset_seconds",
        _G,
        ("broker",),
        "a coordinator's clock minus ours, the middle of what its records in `__transaction_state` allow; only where "
        "they bound it on both sides",
    ),
    Metric(
        HEALTH,
        "broker_clock_uncertainty_seconds",
        _G,
        ("broker",),
        "how far off that may be, to either side",
    ),
    Metric(
        EVIDENCE,
        "unproven_partitions",
        _G,
        ("log",),
        "partitions of which the last barrier proves nothing: not listed, not read to their ends, named by a "
        "transaction and hidden from us, or not described by their leaders in any census since the start or for half a "
        "minute; 1 for a coordinator's log that no broker shows while there is open data",
    ),
    Metric(EVIDENCE, "unread_gaps", _G, (), "partitions with a range that was listed and could not be read yet"),
    Metric(
        EVIDENCE,
        "undescribed_partitions",
        _G,
        (),
        "partitions whose leaders did not describe their producers in the last census that asked them",
    ),
    Metric(EVIDENCE, "census_rounds_total", _C, ("result",), "censuses, by whether every leader answered"),
    Metric(EVIDENCE, "inconclusive_looks", _G, ("why",), "open transactions of which the last barrier proved nothing"),
    Metric(
        EVIDENCE,
        "partition_notices_total",
        _C,
        ("kind",),
        "ranges of partitions that could not be read (gap), never can be (lost), were cut (truncated), are gone "
        "(deleted); partitions that a transaction names and that are not shown to us (hidden)",
    ),
    Metric(
        EVIDENCE,
        "throttled_seconds_total",
        _C,
        ("request",),
        "for how long brokers have throttled us by a quota, by the kind of request (Fetch: consumer_byte_rate)",
    ),
    Metric(EVIDENCE, "decode_failures_total", _C, (), "batches or records with bytes that we cannot decode"),
    Metric(
        EVIDENCE,
        "view_mismatches_total",
        _C,
        ("mismatch",),
        "transactions a census found open (or closed) where the log as we read it said otherwise",
    ),
    Metric(INCIDENTS, "open_incidents", _G, ("verdict", "severity"), "incidents that are open now"),
    Metric(INCIDENTS, "events_total", _C, ("verdict", "status"), "incident events made"),
    Metric(
        INCIDENTS,
        "detection_latency_seconds",
        _H,
        ("verdict",),
        "from the first sight of what is wrong to the incident, where the event tells it",
        buckets=DETECTION_S,
    ),
    Metric(
        INCIDENTS,
        "confirmations_total",
        _C,
        ("verdict", "answer"),
        "fresh reads before anything is said: confirmed, refuted, unknown",
    ),
    Metric(
        INCIDENTS,
        "abort_decisions_total",
        _C,
        ("decision", "result"),
        "decisions about incidents: abort with what came of it (none: announced), dry_run, refused with the refusal",
    ),
    Metric(
        INCIDENTS,
        "events_passed_over_total",
        _C,
        ("why",),
        "records of the events topic that were read and are no events of ours",
    ),
    Metric(INCIDENTS, "sink_waiting_events", _G, ("sink",), "events a sink has not taken yet"),
    Metric(INCIDENTS, "sink_failures_total", _C, ("sink",), "deliveries that failed; they are tried again"),
    Metric(
        OPEN,
        "transactions",
        _G,
        ("state",),
        "producer ids with an open transaction; unowned is open data that no live transaction owns",
    ),
    Metric(
        OPEN,
        "oldest_open_transaction_seconds",
        _G,
        (),
        "age of the oldest open transaction, from 5 s on; else 0",
        is_read=True,
    ),
    Metric(
        OPEN,
        "lso_pinned_seconds",
        _G,
        ("topic", "partition"),
        "how long the data at the partition's last stable offset has been open; only where it is 2 s or more",
        is_read=True,
    ),
    Metric(
        OPEN,
        "hidden_records",
        _G,
        ("topic", "partition"),
        "offsets between there and the partition's end, which read_committed consumers cannot see; of scanned topics",
        is_read=True,
    ),
    Metric(
        COORDINATOR,
        "transaction_state_append_seconds",
        _H,
        ("target_state",),
        "Prepare* appended to `__transaction_state` -> committed there",
        is_read=True,
        buckets=STAGE_S,
    ),
    Metric(
        COORDINATOR,
        "transaction_marker_completion_seconds",
        _H,
        ("target_state",),
        "Prepare* committed -> Complete* appended: every marker written",
        is_read=True,
        buckets=STAGE_S,
    ),
    Metric(
        COORDINATOR,
        "transaction_completion_seconds",
        _H,
        ("target_state",),
        "Prepare* appended -> Complete* appended",
        is_read=True,
        buckets=STAGE_S,
    ),
    Metric(
        COORDINATOR,
        "transaction_failover_completion_seconds",
        _H,
        ("target_state",),
        "the same, of those transactions whose coordinator moved to another broker in between",
        is_read=True,
        buckets=STAGE_S,
    ),
    Metric(
        COORDINATOR,
        "transactions_pending_markers",
        _G,
        ("target_state",),
        "transactions in Prepare*: some markers, or the final append, are outstanding",
    ),
    Metric(
        COORDINATOR,
        "oldest_pending_transaction_seconds",
        _G,
        (),
        "how long the oldest of them has been prepared; else 0",
        is_read=True,
    ),
)
