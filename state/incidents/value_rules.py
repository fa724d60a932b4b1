"""The allowed values of an incident event: the only place where foreign events are checked. Pure: no I/O, no clock.

Anybody who may write the events topic, or Redis, can write anything. The decoder checks the types of the model first,
and so the closed sets of values (state/model/incident.py). After the rules of this module, every number fits
Kafka's field for it, every time can be shown, and every text is UTF-8 of a bounded length. A value that is absent is
null, never -1. Functions check this, and not `msgspec.Meta` of the types: its length counts characters, it lets half
of a surrogate pair pass, and its `$` a line feed. The check cannot prove that an event is true, so no action
depends on foreign events.

Law: every event that txnwatch writes passes. So a client's timestamp may be any int64, and a transactional id any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from txnwatch.state.model.incident import IncidentEvent, is_incident_id
from txnwatch.state.model.values import INT16, INT32, INT64, LAST_TIME_MS, TopicPartition, is_topic_name
from txnwatch.state.text import GIVEN_NAME, WEB_ADDRESS

Check = Callable[[Any], bool]
NAME_BYTES = INT16  # an id is an int16-length string in Kafka's protocol
TEXT_BYTES = 256 * 1024
OWNER_BYTES = 1_000
_SHORT = re.compile(r"[!-~]{1,255}")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_POLICY = re.compile(r"[a-z, _-]{0,64}")
_LOG_PLACE = re.compile(r"[0-9]{1,10}@[0-9]{1,19}")


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


def _is_partition(value: str) -> bool:
    try:
        partition = TopicPartition.parse(value)
    except ValueError:
        return False
    return is_topic_name(partition.topic) and 0 <= partition.partition <= INT32 and str(partition) == value


def _all(check: Check) -> Check:
    return lambda values: all(check(value) for value in values)


def _record(checks: Mapping[str, Check]) -> Check:
    """Checks the fields of a part of the event; None is allowed where the type of the field allows it."""
    return lambda part: all((value := getattr(part, name)) is None or check(value) for name, check in checks.items())


is_cluster_id = _like(_SHORT)
_INT32, _INT64, _EPOCH = is_number(0, INT32), is_number(0, INT64), is_number(0, INT16)
_ANY_INT64 = is_number(-INT64 - 1, INT64)
_TIME = is_number(0, LAST_TIME_MS)
_NAME, _TEXT = is_text(NAME_BYTES), is_text(TEXT_BYTES)

GROUP: Final[dict[str, Check]] = {
    "group_id": _NAME,
    "committed_offset": _INT64,
    "hidden_lag": _ANY_INT64,
}
WAITING: Final[dict[str, Check]] = {
    "group_id": _NAME,
    "partitions": _all(_is_partition),
}
CONNECT: Final[dict[str, Check]] = {
    "topic": is_topic_name,
    "group_id": _NAME,
}
OWNER: Final[dict[str, Check]] = {
    "team": _like(GIVEN_NAME),
    **dict.fromkeys(("name", "contact", "ref"), is_text(OWNER_BYTES)),
    "url": _like(WEB_ADDRESS),
}
ID_PART: Final[dict[str, Check]] = {
    "name": _NAME,
    "value": _NAME,
}
APPLICATION: Final[dict[str, Check]] = {
    "framework": _NAME,
    "name": _NAME,
    "parts": _all(_record(ID_PART)),
    "rule": _TEXT,
    "also": _all(_NAME),
}
EVIDENCE: Final[dict[str, Check]] = {
    **dict.fromkeys(("first_barrier", "second_barrier", "end_before", "end_after"), _INT64),
    **dict.fromkeys(
        (
            *("first_data_listed_ms", "first_coordinator_listed_ms"),
            *("data_listed_ms", "coordinator_listed_ms", "confirmed_ms"),
        ),
        _TIME,
    ),
    **dict.fromkeys(("leader", "leader_epoch", "last_sequence"), _INT32),
    "coordinator_producer_id": _INT64,
    "coordinator_producer_epoch": _EPOCH,
    "coordinator_partitions": _all(_is_partition),
    "joined_at_offset": _INT64,
    "joined_by_epoch": _EPOCH,
    "coordinator_log": _like(_LOG_PLACE),
}
ACTION: Final[dict[str, Check]] = {
    "detail": _TEXT,
    "by": _TEXT,
    "principal": _TEXT,
    "marker_producer_epoch": _EPOCH,
    "marker_coordinator_epoch": _INT32,
    "last_stable_offset_before": _INT64,
    "last_stable_offset_after": _INT64,
    "at_ms": _TIME,
}
RESOLUTION: Final[dict[str, Check]] = {
    "marker_offset": _INT64,
    "detail": _TEXT,
    "at_ms": _TIME,
}
EVENT: Final[dict[str, Check]] = {
    "incident_id": is_incident_id,
    "sequence": is_number(1, INT32),
    "cluster_id": is_cluster_id,
    "cluster_name": is_cluster_id,
    "topic": is_topic_name,
    "partition": is_number(0, INT32),
    "topic_id": _like(_TOPIC_ID),
    "producer_id": _INT64,
    "producer_epoch": _EPOCH,
    "transactional_id": _NAME,
    "owner": _record(OWNER),
    "application": _record(APPLICATION),
    "coordinator_id": _INT32,
    "coordinator_epoch": _INT32,
    "txn_start_offset": _INT64,
    "open_since_ms": _TIME,
    "last_write_ms": _ANY_INT64,
    "transaction_timeout_ms": _INT32,
    "age_ms": _INT64,
    "overdue_ms": _ANY_INT64,
    "last_stable_offset": _INT64,
    "high_watermark": _INT64,
    "hidden_records": _ANY_INT64,
    "lso_standing_ms": _ANY_INT64,
    "cleanup_policy": _like(_POLICY),
    "pending_partitions": _all(_is_partition),
    "consumer_groups": _all(_record(GROUP)),
    "waiting_groups": _all(_record(WAITING)),
    "connect": _record(CONNECT),
    "evidence": _record(EVIDENCE),
    "outcome_detail": _TEXT,
    "outcome_by": _NAME,
    "suggested_command": _TEXT,
    "detected_at_ms": _TIME,
    "detection_latency_ms": _INT64,
    "time_ms": _TIME,
    "action": _record(ACTION),
    "resolution": _record(RESOLUTION),
}


def problem_of(event: IncidentEvent) -> str | None:
    """The first problem of an event's values, None if there is none."""
    for name, check in EVENT.items():
        value = getattr(event, name)
        if value is not None and not check(value):
            return f"{name} has an invalid value: {str(value)[:60]!a}"
    if (event.topic is None) is not (event.partition is None):
        return "topic without partition, or partition without topic"
    if event.is_open is not (event.resolution is None):
        return "expected a resolution if the status is resolved, and none otherwise"
    return None
