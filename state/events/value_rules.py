"""The allowed values of an incident event: the only place where foreign events are checked. Pure: no I/O, no clock.

Anybody who may write the events topic, or Redis, can write anything. After this check every value of a closed set is in
that set, every number fits Kafka's field for it, every time can be shown, and every text is UTF-8 of a bounded length.
The check cannot prove that an event is true, so no action depends on foreign events.

Law: every event that txnwatch writes passes. So a client's timestamp may be any int64, and a transactional id any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from txnwatch.state.abort.results import DECISIONS, RESULTS
from txnwatch.state.abort.rules import Refusal
from txnwatch.state.evidence import outcome
from txnwatch.state.evidence.affected_groups import AT_RISK, STOPPED
from txnwatch.state.model.ids import TopicPartition, is_topic_name
from txnwatch.state.model.incident import OPENED, RESOLVED, UPDATED, is_incident_id
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.verdicts import RULE_OF, Reason, Verdict

Check = Callable[[Any], bool]
INT16, INT32, INT64 = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
LAST_TIME_MS = 253_402_300_799_999  # the end of the year 9999: the last that can be shown as a date
NAME_BYTES = INT16  # an id is an int16-length string in Kafka's protocol
TEXT_BYTES = 256 * 1024
CLOCKS = ("coordinator", "observed")
ENDS = ("committed", "aborted", "absorbed", "moved_on", "partition_gone", "truncated", "refuted", "no_longer_open")
ENDED_BY = ("coordinator", "administrator", "next_transaction", "txnwatch", "unknown")
_SHORT = re.compile(r"[!-~]{1,255}")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_POLICY = re.compile(r"[a-z, _-]{0,64}")
_LOG_PLACE = re.compile(r"[0-9]{1,10}@-?[0-9]{1,19}")


def is_number(lowest: int, highest: int) -> Check:
    """Accepts a whole number in a range, but not `true`."""
    return lambda value: type(value) is int and lowest <= value <= highest


def is_text(most: int) -> Check:
    """Accepts text that can be encoded as UTF-8, of at most `most` bytes."""
    return lambda value: isinstance(value, str) and _size(value) <= most


def _size(text: str) -> float:
    try:
        return len(text.encode())
    except UnicodeEncodeError:  # half of a surrogate pair is not valid text
        return float("inf")


def _like(pattern: re.Pattern[str]) -> Check:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _one_of(*words: str) -> Check:
    known = frozenset(str(word) for word in words)
    return lambda value: isinstance(value, str) and value in known


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _is_flag(value: Any) -> bool:  # noqa: ANN401 - what is checked can be anything
    return type(value) is bool


def _is_partition(value: Any) -> bool:  # noqa: ANN401
    try:
        found = TopicPartition.parse(value)
    except (ValueError, AttributeError):
        return False
    return is_topic_name(found.topic) and 0 <= found.partition <= INT32 and str(found) == value


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list | tuple) and all(check(one) for one in value)


def _record(fields: Mapping[str, Check], needed: Iterable[str] | None = None) -> Check:
    """Accepts a dict; it must have all fields, or those in `needed`."""
    least = frozenset(fields if needed is None else needed)
    return lambda value: (
        isinstance(value, dict)
        and least <= value.keys() <= fields.keys()
        and all(fields[key](found) for key, found in value.items())
    )


is_cluster_id = _like(_SHORT)
_INT32, _INT64, _EPOCH = is_number(-1, INT32), is_number(-1, INT64), is_number(-1, INT16)
_ANY_INT64 = is_number(-INT64 - 1, INT64)
_TIME = is_number(-1, LAST_TIME_MS)
_NAME, _TEXT = is_text(NAME_BYTES), is_text(TEXT_BYTES)

GROUP: Final[dict[str, Check]] = {
    "group_id": _NAME,
    "state": _one_of(STOPPED, AT_RISK),
    "committed_offset": _INT64,
    "hidden_lag": _ANY_INT64,
}
EVIDENCE: Final[dict[str, Check]] = {
    "complete": _is_flag,
    **dict.fromkeys(("first_barrier", "second_barrier", "end_before", "end_after"), _or_none(_INT64)),
    **dict.fromkeys(("data_listed_ms", "coordinator_listed_ms", "confirmed_ms"), _or_none(_TIME)),
    **dict.fromkeys(("leader", "leader_epoch", "last_sequence"), _or_none(_INT32)),
    "coordinator_producer_id": _or_none(_INT64),
    "coordinator_producer_epoch": _or_none(_EPOCH),
    "coordinator_partitions": _list_of(_is_partition),
    "joined_at_offset": _or_none(_INT64),
    "joined_by_epoch": _or_none(_EPOCH),
    "coordinator_log": _or_none(_like(_LOG_PLACE)),
}
ACTION: Final[dict[str, Check]] = {
    "decision": _one_of(*DECISIONS),
    "refusal": _or_none(_one_of(*Refusal)),
    "result": _or_none(_one_of(*RESULTS)),
    "detail": _or_none(_TEXT),
    "by": _TEXT,
    "marker_producer_epoch": _or_none(_EPOCH),
    "marker_coordinator_epoch": _or_none(_INT32),
    "last_stable_offset_before": _or_none(_INT64),
    "last_stable_offset_after": _or_none(_INT64),
    "at_ms": _TIME,
}
RESOLUTION: Final[dict[str, Check]] = {
    "how": _one_of(*ENDS),
    "by": _one_of(*ENDED_BY),
    "marker_offset": _or_none(_INT64),
    "detail": _or_none(_TEXT),
    "at_ms": _TIME,
}
EVENT: Final[dict[str, Check]] = {
    "incident_id": lambda value: isinstance(value, str) and is_incident_id(value),
    "sequence": is_number(1, INT32),
    "status": _one_of(OPENED, UPDATED, RESOLVED),
    "verdict": _one_of(*Verdict),
    "reason": _or_none(_one_of(*Reason)),
    "severity": _one_of(*(rule.severity for rule in RULE_OF.values())),
    "cluster_id": is_cluster_id,
    "topic": _or_none(lambda value: isinstance(value, str) and is_topic_name(value)),
    "partition": _or_none(is_number(0, INT32)),
    "topic_id": _or_none(_like(_TOPIC_ID)),
    "producer_id": _INT64,
    "producer_epoch": _EPOCH,
    "transactional_id": _or_none(_NAME),
    "coordinator_id": _or_none(_INT32),
    "coordinator_epoch": _or_none(_INT32),
    "transaction_state": _or_none(_one_of(*TransactionState)),
    "txn_start_offset": _or_none(_INT64),
    "open_since_ms": _TIME,
    "open_since_clock": _one_of(*CLOCKS),
    "last_write_ms": _or_none(_ANY_INT64),
    "transaction_timeout_ms": _or_none(_INT32),
    "age_ms": _INT64,
    "overdue_ms": _or_none(_ANY_INT64),
    "last_stable_offset": _or_none(_INT64),
    "high_watermark": _or_none(_INT64),
    "hidden_records": _or_none(_ANY_INT64),
    "lso_standing_ms": _or_none(_ANY_INT64),
    "is_lso_blocker": _or_none(_is_flag),
    "cleanup_policy": _or_none(_like(_POLICY)),
    "pending_partitions": _list_of(_is_partition),
    "consumer_groups": _list_of(_record(GROUP)),
    "evidence": _record(EVIDENCE, needed=("complete",)),
    "expected_outcome": _one_of(outcome.COMMIT, outcome.ABORT, outcome.NONE, outcome.UNKNOWN),
    "suggested_command": _or_none(_TEXT),
    "detected_at_ms": _TIME,
    "detection_latency_ms": _INT64,
    "time_ms": _TIME,
    "action": _or_none(_record(ACTION)),
    "resolution": _or_none(_record(RESOLUTION)),
}


def problem_of(fields: Mapping[str, Any]) -> str | None:
    """The first problem of an event's fields, None if there is none; every field of EVENT is required."""
    for name, check in EVENT.items():
        if name not in fields:
            return f"{name} is missing"
        if not check(fields[name]):
            return f"{name} has an invalid value: {str(fields[name])[:60]!a}"
    if (fields["topic"] is None) is not (fields["partition"] is None):
        return "topic without partition, or partition without topic"
    if (fields["status"] == RESOLVED) is (fields["resolution"] is None):
        return "expected a resolution if the status is resolved, and none otherwise"
    return None
