"""Whatever is on the events topic: the result is an event, or one error that names it as invalid, and nothing else."""

from __future__ import annotations

import copy
import json
from dataclasses import MISSING, fields
from enum import Enum, StrEnum
from typing import Any, get_args, get_type_hints

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.incidents import APPLICATION_VALUE, OWNER_VALUE, a_life, an_event
from support.ledger_world import HOUR_MS, LedgerWorld
from txnwatch.cli.output import event_line
from txnwatch.sinks.delivery.encoding import (
    FORMATS,
    MAX_BYTES,
    cloud_event_headers,
    from_bytes,
    schema,
    to_avro,
    to_json,
)
from txnwatch.state.evidence.outcome import unknown, with_outcome
from txnwatch.state.incidents.value_rules import (
    ACTION,
    APPLICATION,
    EVENT,
    EVIDENCE,
    GROUP,
    ID_PART,
    OWNER,
    RESOLUTION,
    WAITING,
)
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import (
    Action,
    ActionResult,
    AffectedGroup,
    Decision,
    EndedBy,
    EndKind,
    Evidence,
    ExpectedOutcome,
    GroupState,
    IncidentEvent,
    IncidentStatus,
    Initiator,
    OutcomeDoubt,
    Resolution,
    SinceClock,
    WaitingGroup,
    updated,
)
from txnwatch.state.model.ownership import Advice, Certainty, FoundBy, IdMaker, IdPart, OwningTeam
from txnwatch.state.model.values import LAST_TIME_MS
from txnwatch.state.model.verdicts import Reason, Severity, Verdict

ACTION_VALUE = {
    "decision": "abort",
    "refusal": None,
    "result": "verified",
    "detail": "some text",
    "by": "host:dir",
    "principal": "User:alice",
    "marker_producer_epoch": 1,
    "marker_coordinator_epoch": 2,
    "last_stable_offset_before": 3,
    "last_stable_offset_after": 4,
    "at_ms": 5,
    "initiator": "operator",
}
GROUP_VALUE = {"group_id": "billing", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}
WAITING_VALUE = {"group_id": "stream", "partitions": ("orders-1",)}
WHOLE = [
    *a_life("incident"),
    *(
        with_outcome(an_event(), unknown(kind, "orders-3\x1b[2J"))
        for kind in (OutcomeDoubt.NOT_READ, OutcomeDoubt.LOG_ELECTION)
    ),
    updated(an_event(action=ACTION_VALUE, consumer_groups=(GROUP_VALUE,), pending_partitions=("a-b-1",)), 5),
    updated(an_event(waiting_groups=(WAITING_VALUE,)), 5),
    an_event(owner=OWNER_VALUE, application=APPLICATION_VALUE, advice="resume_flink_job"),
]
DEEP = b"[" * 100_000 + b"]" * 100_000


def raw(**changes: Any) -> dict[str, Any]:
    return {**json.loads(to_json(an_event())), **changes}


def why(value: bytes) -> SkipReason:
    with pytest.raises(BadEventError) as refused:
        from_bytes(value)
    assert len(str(refused.value)) < 1_000, "what is shown of it is bounded"
    return refused.value.why


NOT_DECODED = {
    "nested deeper than a decoder goes": DEEP,
    "a field nested deeper than a decoder goes": json.dumps(raw())[:-1].encode() + b',"x":' + DEEP + b"}",
    "not a number": json.dumps(raw(open_since_ms=float("nan"))).encode(),
    "infinite": json.dumps(raw(open_since_ms=float("inf"))).encode(),
    "a number of 5,000 digits": json.dumps(raw(x=1))[:-2].encode() + b"9" * 5_000 + b"}",
    "no UTF-8": b'{"incident_id":"\xff"}',
    "more behind it": to_avro(an_event()) + b"\x00",
    "Avro that ends early": to_avro(an_event())[:-1],
    "nothing": b"",
}


@pytest.mark.parametrize("value", NOT_DECODED.values(), ids=NOT_DECODED.keys())
def test_an_undecodable_batch_is_reported_as_a_decode_failure(value: bytes) -> None:
    assert why(value) is SkipReason.UNDECODABLE


def test_a_value_that_is_too_large_is_not_decoded() -> None:
    assert why(b"[" + b" " * 50_000_000 + b"]") is SkipReason.TOO_LARGE
    fits = json.dumps(raw(suggested_command="x" * 200_000)).encode()
    assert len(fits) < MAX_BYTES
    from_bytes(fits)


NOT_AN_EVENT: dict[str, dict[str, Any]] = {
    "a time of 1e30": {"open_since_ms": 1e30},
    "a time beyond the last date": {"time_ms": LAST_TIME_MS + 1},
    "a time before all times": {"detected_at_ms": -2},
    "an absent time as a number": {"last_write_ms": None, "open_since_ms": -1},
    "an absent offset as a number": {"txn_start_offset": -1},
    "an absent epoch as a number": {"producer_epoch": -1},
    "an absent broker as a number": {"coordinator_id": -1},
    "an absent place in the log": {"evidence": {"complete": True, "coordinator_log": "1@-1"}},
    "a fraction": {"partition": 1.0},
    "a truth for a number": {"sequence": True},
    "a number for a truth": {"is_lso_blocker": 1},
    "sequence 0": {"sequence": 0},
    "a sequence beyond its field": {"sequence": 1 << 31},
    "a producer id beyond its field": {"producer_id": 1 << 63},
    "an epoch beyond its field": {"producer_epoch": 1 << 15},
    "half a character": {"transactional_id": "\ud800"},
    "an id longer than Kafka's field": {"transactional_id": "\u00fc" * 16_384},
    "an id of another form": {"incident_id": "../../etc"},
    "an id in capitals": {"incident_id": "A" * 32},
    "a topic that no topic can be": {"topic": "a topic"},
    "a topic without a partition": {"partition": None},
    "a verdict in free text": {"verdict": "all is lost"},
    "a status with an escape": {"status": "opened\x1b[2J"},
    "another severity": {"severity": "apocalyptic"},
    "another reason": {"reason": "because"},
    "another outcome": {"expected_outcome": "abort; rm -rf /"},
    "another doubt": {"outcome_doubt": "a bad feeling"},
    "a doubt in capitals": {"outcome_doubt": "NOT_READ"},
    "a number for the text of a doubt": {"outcome_detail": 5},
    "half a character in the text of a doubt": {"outcome_detail": "\ud800"},
    "another state": {"transaction_state": "Undead"},
    "another clock": {"open_since_clock": "sundial"},
    "a cluster id with spaces": {"cluster_id": "a b"},
    "an end that goes on": {"status": "resolved"},
    "an opening with an end": {"resolution": {"how": "aborted", "by": "txnwatch", "at_ms": 1}},
    "another end": {"status": "resolved", "resolution": {"how": "magic", "by": "unknown", "at_ms": 1}},
    "ended by another": {"status": "resolved", "resolution": {"how": "aborted", "by": "me", "at_ms": 1}},
    "another decision": {"action": {**ACTION_VALUE, "decision": "shrug"}},
    "another result": {"action": {**ACTION_VALUE, "result": "unsure"}},
    "another refusal": {"action": {**ACTION_VALUE, "refusal": "mood"}},
    "another initiator": {"action": {**ACTION_VALUE, "initiator": "nobody"}},
    "a group in another state": {"consumer_groups": [{**GROUP_VALUE, "state": "asleep"}]},
    "a group that waits for no partition": {"waiting_groups": [{**WAITING_VALUE, "partitions": ["orders"]}]},
    "a group that waits and has no name": {"waiting_groups": [{"partitions": ["orders-1"]}]},
    "a partition that is none": {"pending_partitions": ["orders"]},
    "a partition with a number in other digits": {"pending_partitions": ["orders-\u0663"]},
    "an owner without a team": {"owner": {**OWNER_VALUE, "team": None}},
    "a team in capitals": {"owner": {**OWNER_VALUE, "team": "Checkout"}},
    "a link that is a script": {"owner": {**OWNER_VALUE, "url": "javascript:alert(1)"}},
    "a link with a control character": {"owner": {**OWNER_VALUE, "url": "https://a\x1b[2J"}},
    "a contact without an end": {"owner": {**OWNER_VALUE, "contact": "a" * 1_001}},
    "an owner that is found elsewhere": {"owner": {**OWNER_VALUE, "found_by": "a dream"}},
    "an application of another certainty": {"application": {**APPLICATION_VALUE, "certainty": "sure"}},
    "a part without a name": {"application": {**APPLICATION_VALUE, "parts": [{"value": "4"}]}},
    "another advice": {"advice": "abort it now"},
    "evidence without its reason": {"evidence": {}},
    "evidence of another kind": {"evidence": {"complete": "yes"}},
}


@pytest.mark.parametrize("changes", NOT_AN_EVENT.values(), ids=NOT_AN_EVENT.keys())
def test_a_value_that_no_event_can_have_makes_it_none(changes: dict[str, Any]) -> None:
    assert why(json.dumps(raw(**changes)).encode()) is SkipReason.INVALID


PARTS: dict[type, tuple[str | None, dict[str, Any]]] = {
    IncidentEvent: (None, EVENT),
    OwningTeam: ("owner", OWNER),
    IdMaker: ("application", APPLICATION),
    IdPart: ("application.parts", ID_PART),
    Evidence: ("evidence", EVIDENCE),
    AffectedGroup: ("consumer_groups", GROUP),
    WaitingGroup: ("waiting_groups", WAITING),
    Action: ("action", ACTION),
    Resolution: ("resolution", RESOLUTION),
}


def record_of(name: str | None) -> dict[str, Any]:
    """The record of the schema: the event, or the part at the path of a field."""
    found: dict[str, Any] = schema()
    for one in name.split(".") if name is not None else ():
        kind = next(each["type"] for each in found["fields"] if each["name"] == one)
        found = kind[1] if isinstance(kind, list) else kind.get("items", kind)
    return found


@pytest.mark.parametrize(("part", "name", "rules"), [(part, *found) for part, found in PARTS.items()])
def test_every_field_of_the_schema_has_a_closed_type_or_a_rule(
    part: type, name: str | None, rules: dict[str, Any]
) -> None:
    assert [one["name"] for one in record_of(name)["fields"]] == [spec.name for spec in fields(part)]
    hints = get_type_hints(part)
    closed = {spec for spec, hint in hints.items() if is_closed(hint)}
    assert closed | rules.keys() == hints.keys()
    assert not closed & rules.keys()


def is_closed(hint: Any) -> bool:
    (kind, *_) = [one for one in (get_args(hint) or (hint,)) if one is not type(None)]
    return kind is bool or (isinstance(kind, type) and issubclass(kind, Enum))


@pytest.mark.parametrize(("part", "name", "rules"), [(part, *found) for part, found in PARTS.items()])
def test_a_field_that_is_missing_gets_the_default_of_the_schema(
    part: type, name: str | None, rules: dict[str, Any]
) -> None:
    del rules
    defaults = {spec.name: msgspec.to_builtins(spec.default) for spec in fields(part) if spec.default is not MISSING}
    of_schema = {one["name"]: one["default"] for one in record_of(name)["fields"] if "default" in one}
    assert {key: list(value) if isinstance(value, tuple) else value for key, value in defaults.items()} == of_schema


CLOSED_SETS: dict[type[StrEnum], str] = {
    IncidentStatus: "opened updated resolved",
    Severity: "critical warning info",
    SinceClock: "coordinator observed",
    ExpectedOutcome: "commit abort none unknown",
    OutcomeDoubt: (
        "not_found_here no_record id_expired ongoing_moved records_moved producer_id_superseded "
        "transaction_live log_not_listed log_election leader_not_watched began_before_election "
        "epoch_shared not_a_participant data_mixed marker_unknown coordinator_moved_on not_read "
        "written_meanwhile listing_awaited written_since begun_since contradiction"
    ),
    GroupState: "stopped at_risk",
    FoundBy: "transactional_id application topic group",
    Certainty: "certain possible",
    Advice: "resume_flink_job",
    Decision: "abort commit dry_run refused fence",
    ActionResult: "verified still_open failed unknown",
    Initiator: "watch operator",
    EndKind: "committed aborted absorbed moved_on partition_gone truncated refuted no_longer_open given_up",
    EndedBy: "txnwatch client coordinator administrator next_transaction unknown",
}


@pytest.mark.parametrize(("values", "published"), CLOSED_SETS.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_the_values_of_a_closed_set_are_the_published_ones(values: type[StrEnum], published: str) -> None:
    assert list(values) == published.split()


def test_an_event_of_the_ledger_is_read_back_unchanged() -> None:
    world = LedgerWorld()
    candidate = world.hang("caf\u00e9\n\x1b[31m'")
    world.batch(candidate)
    world.batch(world.abort(candidate))
    world.batch(after_ms=HOUR_MS)
    assert [event.status for event in world.topic.published] == ["opened", "resolved"]
    for event in world.topic.published:
        assert from_bytes(to_json(event)) == event
        assert from_bytes(to_avro(event)).event_id == event.event_id


@pytest.mark.parametrize("kind", OutcomeDoubt)
def test_an_event_with_a_doubt_is_read_back_unchanged(kind: OutcomeDoubt) -> None:
    event = with_outcome(an_event(), unknown(kind, "caf\u00e9\n\x1b[31m'"))
    assert (event.outcome_doubt, "caf\u00e9" in (event.outcome_detail or "")) == (kind, True)
    for encoded in (to_json(event), to_avro(event)):
        assert from_bytes(encoded) == event


def test_a_hang_of_the_ledger_has_its_doubt_on_the_topic() -> None:
    world = LedgerWorld()
    candidate = world.hang()
    world.admin.log_epoch = 1
    world.batch(msgspec.structs.replace(candidate, log_epoch=1))
    (event,) = world.topic.published
    for encoded in (to_json(event), to_avro(event)):
        read = from_bytes(encoded)
        assert (read.expected_outcome, read.outcome_doubt) == (ExpectedOutcome.UNKNOWN, OutcomeDoubt.LOG_ELECTION)
        assert "(__transaction_state-0: leader epoch 0 then, 1 now)" in (read.outcome_detail or "")


def test_fields_of_a_later_version_are_left_out_inside_too() -> None:
    later = raw(new={"deep": [1]})
    later["evidence"]["new"] = [[[[1]]]]
    later["consumer_groups"] = [{**GROUP_VALUE, "new": 1}]
    later["action"] = {**ACTION_VALUE, "new": 1}
    assert from_bytes(json.dumps(later).encode()) == an_event(consumer_groups=(GROUP_VALUE,), action=ACTION_VALUE)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_event_or_no_event(value: bytes) -> None:
    check(value)


@given(st.binary(max_size=200), st.sampled_from(WHOLE))
def test_any_avro_body_is_an_event_or_no_event(body: bytes, event: IncidentEvent) -> None:
    check(to_avro(event)[:10] + body)


@given(st.sampled_from(WHOLE), st.integers(0, 3_000), st.integers(0, 255), st.sampled_from(sorted(FORMATS)))
def test_a_byte_that_is_changed_makes_an_event_or_no_event(event: IncidentEvent, at: int, byte: int, how: str) -> None:
    value = bytearray(FORMATS[how].encode(event))
    value[at % len(value)] = byte
    check(bytes(value))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20)
    | st.sampled_from(["opened", "resolved", *Verdict, *Reason]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted({*EVENT, *ACTION})), inner),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """An event that is whole, and then some of it, at any depth, is anything else."""
    value: dict[str, Any] = copy.deepcopy(json.loads(to_json(draw(st.sampled_from(WHOLE)))))
    for _ in range(draw(st.integers(1, 3))):
        place = value
        while True:
            if not place:
                break
            name = draw(st.sampled_from(sorted(place)))
            if isinstance(place[name], dict) and draw(st.booleans()):
                place = place[name]
                continue
            if draw(st.booleans()):
                place[name] = draw(ANYTHING)
            else:
                del place[name]
            break
    return value


@given(mutated())
def test_an_event_that_is_changed_anywhere_is_an_event_or_no_event(value: dict[str, Any]) -> None:
    check(json.dumps(value).encode())


def check(value: bytes) -> None:
    """Whatever passes can be shown, and written again."""
    try:
        event = from_bytes(value)
    except BadEventError:
        return
    assert event_line(event).isprintable()
    cloud_event_headers(event, "application/json")
    assert from_bytes(to_avro(event)).incident_id == event.incident_id
    assert event.verdict in set(Verdict)


def test_avro_whose_numbers_are_out_of_range_is_no_event() -> None:
    from txnwatch.sinks.delivery.encoding import plain

    event = an_event()
    assert from_bytes(to_avro(event)) == event
    with pytest.raises((ValueError, OverflowError, fastavro.validation.ValidationError)):
        to_avro(an_event(open_since_ms=1 << 70))
    assert plain(event)["open_since_ms"] == event.open_since_ms
    assert why(to_avro(an_event(time_ms=(1 << 63) - 1))) is SkipReason.INVALID
    assert why(to_avro(an_event(producer_epoch=-5))) is SkipReason.INVALID
