"""The output of Kafka's tools: every form of a record, and lines that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from txnwatch.streaming.wire.printed import (
    MOST_PROBLEMS,
    PrintedProblem,
    PrintedRecord,
    is_dump,
    printed_records,
)

DATA = {
    "producerId": 7,
    "producerEpoch": 3,
    "transactionTimeoutMs": 60_000,
    "transactionStatus": 1,
    "transactionPartitions": [{"topic": "orders", "partitionIds": [0, 2]}],
    "transactionLastUpdateTimestampMs": 1_100,
    "transactionStartTimestampMs": 1_000,
    "previousProducerId": 6,
    "nextProducerId": -1,
    "clientTransactionVersion": 2,
}
KEY = {"transactionalId": "app"}
NEW = PrintedRecord(
    "app", None, None, None, "Ongoing", 7, 3, 60_000, 1_000, 1_100, ("orders-0", "orders-2"), 6, None, 2, 1
)
PLACE = "| offset: 5 CreateTime: 1200 keySize: 7 valueSize: 3 sequence: -1 headerKeys: [] "
AT = {"offset": 5, "timestamp_ms": 1_200}
OLD = {
    "transaction_state": "PrepareCommit",
    "producer_id": 7,
    "producer_epoch": 3,
    "transaction_timeout_ms": 60_000,
    "last_update_time_ms": 1_100,
    "topic_partitions": ("a.b-0", "c-1"),
}
OLD_DUMP = (
    "producerId:7,producerEpoch:3,state=PrepareCommit,partitions=[a.b-0,c-1],txnLastUpdateTimestamp=1100,"
    "txnTimeoutMs=60000"
)
OLD_FIELDS = (
    "producerId=7, producerEpoch=3, txnTimeoutMs=60000, state=PrepareCommit, pendingState=Some(CompleteCommit), "
    "topicPartitions=HashSet(a.b-0, c-1), txnStartTimestamp=1000, txnLastUpdateTimestamp=1100)"
)


def console(value: Any, key: Any = None) -> str:
    return json.dumps({"key": {"version": 0, "data": KEY if key is None else key}, "value": value})


def changed(**fields: Any) -> str:
    return console({"version": 1, "data": {**DATA, **fields}})


def old_console(name: str, before: str = "") -> str:
    return f"{name}::{before}TransactionMetadata(transactionalId={name}, {OLD_FIELDS}"


FORMS = {
    "console": (console({"version": 1, "data": DATA}), NEW),
    "console since 4.4": (changed(transactionStatus="Ongoing"), NEW),
    "console, a tombstone": (console(None), PrintedRecord("app")),
    "dump": (
        f'{PLACE}key: {{"type":"0","data":{json.dumps(KEY)}}} payload: {{"version":"1","data":{json.dumps(DATA)}}}',
        PrintedRecord("app", None, 5, 1_200, *[getattr(NEW, name) for name in list(PrintedRecord.__slots__)[4:]]),
    ),
    "dump, a tombstone": (
        f'{PLACE}key: {{"type":"0","data":{json.dumps(KEY)}}} payload: <DELETE>',
        PrintedRecord("app", **AT),
    ),
    "older dump": (
        f"{PLACE}key: transaction_metadata::transactionalId=a, payload: b payload: {OLD_DUMP}",
        PrintedRecord("a, payload: b", **AT, **OLD),
    ),
    "older dump, a tombstone": (
        f"{PLACE}key: transaction_metadata::transactionalId=app payload: <DELETE>",
        PrintedRecord("app", **AT),
    ),
    "older dump without the place": (
        f"| key: transaction_metadata::transactionalId=app payload: {OLD_DUMP}",
        PrintedRecord("app", **OLD),
    ),
    "older console": (old_console("a::b, c"), PrintedRecord("a::b, c", **OLD, start_time_ms=1_000)),
    "console with Some": (old_console("app", "Some(") + ")", PrintedRecord("app", **OLD, start_time_ms=1_000)),
    "older console, a tombstone": ("a::b::NULL", PrintedRecord("a::b")),
    "older console, None": ("app::None", PrintedRecord("app")),
    "no partitions": (old_console("x").replace("HashSet(a.b-0, c-1)", "Set()"), None),
    "a null in JSON": (changed(transactionPartitions=None), None),
}


@pytest.mark.parametrize(("text", "expected"), FORMS.values(), ids=FORMS.keys())
def test_a_record_is_read_in_each_form(text: str, expected: PrintedRecord | None) -> None:
    (found,) = printed_records(text)
    assert isinstance(found, PrintedRecord)
    if expected is None:
        assert not found.topic_partitions
    else:
        assert found == expected


def test_json_records_follow_each_other_without_a_new_line_or_over_several_lines() -> None:
    pretty = json.dumps(json.loads(FORMS["console"][0]), indent=2)
    text = FORMS["console"][0] * 2 + pretty + "Processed a total of 3 messages\njunk"
    assert list(printed_records(text))[:-1] == [NEW] * 3
    (problem,) = (found for found in printed_records(text) if isinstance(found, PrintedProblem))
    assert problem.line == text.count("\n") + 1


def test_the_other_lines_of_the_tools_are_skipped_and_name_the_partition() -> None:
    dumped = FORMS["dump"][0]
    text = (
        "Dumping /data/__transaction_state-13/00000000000000000000.log\r\nLog starting offset: 0\r\n"
        "baseOffset: 5 lastOffset: 5 count: 1 position: 0 CreateTime: 1 size: 3\r\n"
        f"{dumped}\r\n| offset: 6 CreateTime: 1 keySize: 1 key: unknown::version=4\n\nFound 12 invalid bytes at the end"
    )
    (found,) = printed_records(text)
    assert isinstance(found, PrintedRecord)
    assert (found.partition, found.offset) == (13, 5)
    assert is_dump(text)
    assert not is_dump(FORMS["console"][0])


BAD = {
    "no record": ("junk", "expected a record as kafka-dump-log.sh or the console consumer prints it: 'junk'"),
    "JSON that is cut": (FORMS["console"][0][:-9], "JSON that is cut or damaged (Invalid control character at)"),
    "JSON of another kind": ('{"a": 1}', "expected a JSON object with key and value"),
    "a key that is none": (console(None, key={}), "expected a key with a transactionalId"),
    "a value that was not decoded": (console({"version": 9, "data": "unknown"}), "that the tool could decode"),
    "a number that is none": (changed(producerId="7x"), "expected a whole number of 64 bits, found '7x'"),
    "a number that does not fit": (changed(producerEpoch=40_000), "expected a whole number of 16 bits"),
    "a boolean": (changed(producerId=True), "expected a whole number of 64 bits, found 'True'"),
    "a number of thousands of digits": (changed(producerId="9" * 9_000), "expected a whole number of 64 bits"),
    "an unknown state": (changed(transactionStatus=99), "no transaction state has the id 99"),
    "an id that is too long": ("x" * 40_000 + "::NULL", "expected a transactional id of at most 32767 bytes"),
    "no state": (changed(transactionStatus=None), "expected a transaction state"),
    "partitions that are none": (changed(transactionPartitions=[1]), "expected transactionPartitions with topic"),
    "a topic that is none": (changed(transactionPartitions=[{"topic": 1, "partitionIds": [0]}]), "the name of a topic"),
    "JSON nested too deeply": ('{"a":' * 100_000, "JSON that is nested too deeply"),
    "an older partition that is none": (old_console("x").replace("a.b-0", "a.b"), "expected a partition, found 'a.b'"),
    "an older state": (old_console("x").replace("=PrepareCommit", "=Odd"), "expected a whole number of 8 bits"),
    "a dump without its end": (f"{PLACE}key: transaction_metadata::transactionalId=app", "expected a payload"),
}


@pytest.mark.parametrize(("text", "why"), BAD.values(), ids=BAD.keys())
def test_a_line_that_is_no_record_is_named_and_the_next_one_is_read(text: str, why: str) -> None:
    problem, *others = printed_records(f"{text}\napp::NULL\n")
    assert isinstance(problem, PrintedProblem)
    assert problem.line == 1
    assert why in problem.why
    assert len(problem.why) < 300
    assert others == [PrintedRecord("app")]


def test_a_key_that_the_tool_does_not_know_is_skipped() -> None:
    assert list(printed_records(console(None, key="unknown"))) == []


def test_a_text_of_something_else_is_not_read_to_its_end() -> None:
    found = list(printed_records("junk\n" * (MOST_PROBLEMS + 5) + "app::NULL\n"))
    assert len(found) == MOST_PROBLEMS + 1
    assert found[-1] == PrintedProblem(MOST_PROBLEMS + 1, "more than 200 lines are no records, so the rest is not read")
