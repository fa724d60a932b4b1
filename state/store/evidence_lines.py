"""Stored evidence as lines of JSON that later versions of txnwatch read too.

Apart: it is pure, and run_ledger.py reads and writes the file.

Evidence cannot be collected again if the coordinator has moved on. So unlike the state, it must survive an upgrade. A
line has the name of each value: a later version ignores a name that it does not know, and uses the default of a name
that the line does not have. A person can read it, too.

Law: raise FORMAT if a field of `Witness` or of its view gets another meaning, or is needed and cannot have a default.
Lines of another format are not used. What the process finds afterwards is correct without them, but an outcome that
only they have is unknown then.
"""

from __future__ import annotations

from typing import Any

import msgspec

from txnwatch.state.evidence.outcome import StoredEvidence
from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.transaction import CoordinatorView, SpanData, Witness
from txnwatch.state.model.values import CoordinatorEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition

FORMAT = 2


def _with_names(of: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A copy of a record's type that is encoded as an object with the names of its fields."""
    fields = msgspec.structs.fields(of)
    named: list[Any] = [(one.name, one.type) if one.required else (one.name, one.type, one.default) for one in fields]
    return msgspec.defstruct(of.__name__, named)


_View = _with_names(CoordinatorView)


class _Line(msgspec.Struct):
    format: int
    topic: str
    topic_id: str
    partition: int
    producer_id: ProducerId
    start_offset: Offset
    producer_epoch: ProducerEpoch
    last_sequence: int | None
    last_timestamp_ms: TimestampMs | None
    outcome: ExpectedOutcome
    witness: _View | None  # type: ignore[valid-type]
    log_epoch: CoordinatorEpoch | None = None
    is_begun_under_it: bool = False


_LINES = msgspec.json.Decoder(_Line)


def encode_evidence(evidence: StoredEvidence) -> str:
    """The evidence as one line of JSON."""
    topic_id, partition, producer_id = evidence.key
    witness = evidence.witness
    line = _Line(
        FORMAT,
        partition.topic,
        topic_id,
        partition.partition,
        producer_id,
        *evidence.data,
        evidence.outcome,
        _View(**msgspec.structs.asdict(witness.view)) if witness is not None else None,
        *((witness.log_epoch, witness.is_begun_under_it) if witness is not None else ()),
    )
    return msgspec.json.encode(line).decode()


def decode_evidence(line: str) -> StoredEvidence:
    """The evidence that `encode_evidence` wrote, also in an earlier or a later version.

    Raises:
        ValueError: a value is missing or has another type, the line has another format, or it is nested too deeply.
    """
    try:
        found = _LINES.decode(line)
    except RecursionError:
        raise ValueError("expected evidence, found values that are nested too deeply") from None
    if found.format != FORMAT:
        raise ValueError(f"expected format {FORMAT}, found {found.format}")
    return StoredEvidence(
        (found.topic_id, TopicPartition(found.topic, found.partition), found.producer_id),
        SpanData(found.start_offset, found.producer_epoch, found.last_sequence, found.last_timestamp_ms),
        found.outcome,
        Witness(CoordinatorView(**msgspec.structs.asdict(view)), found.log_epoch, found.is_begun_under_it)
        if (view := found.witness) is not None
        else None,
    )
