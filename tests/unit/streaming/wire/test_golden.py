"""Bytes captured from real brokers decode to what those brokers' own tools print (tests/golden/capture.py)."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.kafka_tools import CODECS, as_kafka_json, as_key, as_printed
from support.raw_log import RawBatch
from txnwatch.state.model.errors import WireError
from txnwatch.state.model.transaction import TransactionState
from txnwatch.streaming.wire.internal_topics import decode_key, decode_value
from txnwatch.streaming.wire.record_batch import MarkerType, read_marker, records, walk

FILES = sorted((Path(__file__).parents[3] / "golden").glob("kafka-*.json"))
CAPTURES = {path.stem: json.loads(path.read_text()) for path in FILES}
Case = dict[str, Any]


def cases(part: str) -> list[Any]:
    return [
        pytest.param({**case, "kafka": captured["kafka"]}, id=f"{version} {case['name']}")
        for version, captured in CAPTURES.items()
        for case in captured[part]
    ]


@pytest.mark.parametrize("case", cases("transaction_log"))
def test_a_record_of_the_coordinators_log_decodes_to_what_kafka_prints(case: Case) -> None:
    assert as_key(decode_key(bytes.fromhex(case["key"]))) == case["decoded"]["key"]
    printed = partial(as_kafka_json, version=case["kafka"])
    value = None if case["value"] is None else printed(decode_value(bytes.fromhex(case["value"])))
    assert value == case["decoded"]["value"]


@pytest.mark.parametrize("case", [case for case in cases("transaction_log") if case.values[0]["value"] is not None])
def test_every_truncation_of_a_captured_record_and_a_byte_too_many_is_a_wire_error(case: Case) -> None:
    for decode, whole in ((decode_key, bytes.fromhex(case["key"])), (decode_value, bytes.fromhex(case["value"]))):
        for size in range(len(whole)):
            with pytest.raises(WireError):
                decode(whole[:size])
        with pytest.raises(WireError):
            decode(whole + b"\0")


@pytest.mark.parametrize("case", cases("batches"))
def test_a_batch_header_decodes_to_what_kafka_prints(case: Case) -> None:
    encoded = bytes.fromhex(case["encoded"])
    ((at, header),) = walk(encoded)
    assert at == 0
    assert as_printed(RawBatch(header, None, encoded), int(case["decoded"]["position"])) == case["decoded"]


@pytest.mark.parametrize("case", cases("batches"))
def test_every_truncation_of_a_captured_batch_is_left_for_the_next_fetch(case: Case) -> None:
    encoded = bytes.fromhex(case["encoded"])
    for size in range(len(encoded)):
        assert list(walk(encoded[:size])) == []
        assert [at for at, _ in walk(encoded + encoded[:size])] == [0]
    assert [at for at, _ in walk(encoded + encoded)] == [0, len(encoded)]


@pytest.mark.parametrize("case", [case for case in cases("batches") if "marker" in case.values[0]["name"]])
def test_a_marker_decodes_to_what_kafka_prints(case: Case) -> None:
    encoded = bytes.fromhex(case["encoded"])
    ((_, header),) = walk(encoded)
    marker = read_marker(encoded, 0, header)
    (printed,) = case["records"]
    assert marker is not None
    assert marker == (MarkerType[printed["endTxnMarker"]], int(printed["coordinatorEpoch"]))
    assert len(encoded) == 78, "what a marker measures, always"


@pytest.mark.parametrize("case", [case for case in cases("batches") if case.values[0]["name"].startswith("data, ")])
def test_a_users_compressed_records_are_refused_and_plain_ones_have_the_offsets_kafka_prints(case: Case) -> None:
    encoded = bytes.fromhex(case["encoded"])
    ((_, header),) = walk(encoded)
    if header.compression:
        with pytest.raises(WireError, match="compression codec"):
            list(records(encoded, 0, header))
        return
    assert [(str(record.offset), str(record.timestamp)) for record in records(encoded, 0, header)] == [
        (printed["offset"], printed["CreateTime"]) for printed in case["records"]
    ]


def test_the_captures_have_every_state_every_codec_and_both_markers() -> None:
    logged = [state for state in TransactionState if state.id <= TransactionState.COMPLETE_ABORT.id]
    assert CAPTURES
    for captured in CAPTURES.values():
        names = {case["name"].partition(" with ")[0] for case in captured["transaction_log"]}
        assert names == {"tombstone", *(f"v{version} {state}" for version in (0, 1) for state in logged)}
        assert [case["name"] for case in captured["batches"]] == sorted(
            ["ABORT marker", "COMMIT marker", *(f"data, {codec}" for codec in CODECS)]
        )
