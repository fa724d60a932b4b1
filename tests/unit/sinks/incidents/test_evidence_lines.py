"""Stored evidence survives an upgrade: a line has the names of its values, and another version reads it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from support.strategies import witnesses
from txnwatch.sinks.incidents.evidence_file import FORMAT, decode_evidence, encode_evidence
from txnwatch.state.evidence.proven_hang import StoredEvidence
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.transaction import CoordinatorView, EpochUse, LossProof, SpanData, TransactionState, Witness
from txnwatch.state.model.values import ProducerEpoch, ProducerId, TopicPartition

# Never change these three: they are what an earlier version of txnwatch has written.
WRITTEN = (
    '{"format":2,"topic":"orders","topic_id":"Zm9v","partition":3,"producer_id":4711,"start_offset":99,'
    '"producer_epoch":2,"last_sequence":20,"last_timestamp_ms":7,"outcome":"abort","witness":{"transactional_id":"payments-ü",'
    '"log_partition":1,"log_offset":77,"state":"CompleteAbort","producer_epoch":3,"timeout_ms":60000,"start_ms":1,'
    '"last_update_ms":2,"record_timestamp_ms":4,"participants":[["orders",3]],"superseded_by":null,"reading":0,'
    '"data_epoch":2,"epoch_use":"raised","coordinator_epoch":9,"since_ms":5,"previous_outcome":null,'
    '"previous_end_epoch":null,"first_unused":null},"log_epoch":9,"is_begun_under_it":true}'
)
NAMELESS = (
    '{"format":2,"topic":"orders","topic_id":"Zm9v","partition":3,"producer_id":4711,"start_offset":99,'
    '"producer_epoch":2,"last_sequence":20,"last_timestamp_ms":7,"outcome":"unknown","witness":null}'
)
OF_FORMAT_1 = (  # it does not have the last timestamp, nor which elections its outcome excludes
    '{"format":1,"topic":"orders","topic_id":"Zm9v","partition":3,"producer_id":4711,"start_offset":99,'
    '"producer_epoch":2,"last_sequence":20,"outcome":"unknown","witness":null}'
)
VIEW = CoordinatorView(
    transactional_id="payments-ü",
    log_partition=1,
    log_offset=77,
    state=TransactionState.COMPLETE_ABORT,
    producer_epoch=ProducerEpoch(3),
    timeout_ms=60_000,
    start_ms=1,
    last_update_ms=2,
    record_timestamp_ms=4,
    participants=frozenset({TopicPartition("orders", 3)}),
    data_epoch=ProducerEpoch(2),
    epoch_use=EpochUse.RAISED,
    coordinator_epoch=9,
    since_ms=5,
)
KEY = ("Zm9v", TopicPartition("orders", 3), ProducerId(4711))
DATA = SpanData(99, ProducerEpoch(2), 20, 7)
# A line that does not say what proves that no record was lost proves nothing.
WITNESS = Witness(VIEW, log_epoch=9, is_begun_under_it=True, proof=LossProof.NOTHING)
EVIDENCE = StoredEvidence(KEY, DATA, ExpectedOutcome.ABORT, WITNESS)


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(WRITTEN), **changes})


def test_lines_of_an_earlier_version_are_read() -> None:
    assert decode_evidence(WRITTEN) == EVIDENCE
    assert decode_evidence(NAMELESS) == StoredEvidence(KEY, DATA, ExpectedOutcome.UNKNOWN, None)


@pytest.mark.parametrize("missing", ["last_sequence", "last_timestamp_ms"])
def test_data_without_a_value_is_read_as_it_was_written(missing: str) -> None:
    evidence = replace(EVIDENCE, data=DATA._replace(**{missing: None}))
    assert decode_evidence(encode_evidence(evidence)) == evidence


def test_fields_of_a_later_version_are_ignored() -> None:
    witness = {**json.loads(WRITTEN)["witness"], "of_a_later_version": [1]}
    assert decode_evidence(changed(witness=witness, more="of a later version")) == EVIDENCE


def test_fields_that_an_earlier_version_lacks_have_their_defaults() -> None:
    witness = json.loads(WRITTEN)["witness"]
    del witness["previous_outcome"], witness["first_unused"]
    assert decode_evidence(changed(witness=witness)) == EVIDENCE


def test_without_the_epoch_of_the_log_the_witness_excludes_no_election() -> None:
    line = {key: value for key, value in json.loads(WRITTEN).items() if key not in {"log_epoch", "is_begun_under_it"}}
    assert decode_evidence(json.dumps(line)) == replace(EVIDENCE, witness=Witness(VIEW, proof=LossProof.NOTHING))


@pytest.mark.parametrize(
    "line",
    [
        changed(format=FORMAT + 1),
        OF_FORMAT_1,
        changed(outcome="another"),
        changed(start_offset=None),
        changed(witness={"transactional_id": "payments-ü"}),
        changed(witness=[]),
        json.dumps({key: value for key, value in json.loads(WRITTEN).items() if key != "last_timestamp_ms"}),
        '["1a2b3c4d",[]]',
        "{}",
        "",
    ],
)
def test_a_line_of_another_format_or_without_a_value_is_refused(line: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of json and of msgspec
        decode_evidence(line)


@given(witnesses)
def test_every_witness_is_read_back_as_it_was(witness: Witness) -> None:
    evidence = replace(EVIDENCE, witness=witness)
    assert decode_evidence(encode_evidence(evidence)) == evidence
