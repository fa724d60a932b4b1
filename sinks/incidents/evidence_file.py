"""The file of this process's own evidence, beside its checkpoint.

The first line has the markers written within the last hour, each other line one hanging transaction, as JSON. Only this
process writes the file; a client of the cluster has no access to it. It keeps outcomes that the coordinator no longer
shows over a restart, even with another version of txnwatch. If the file cannot be read or written, only these data are
lost. A line that cannot be read affects no other line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from txnwatch.state.evidence.proven_hang import StoredEvidence, StoredFindings
from txnwatch.state.model.incident import ExpectedOutcome, OutcomeDoubt
from txnwatch.state.model.transaction import CoordinatorView, LossProof, SpanData, Witness
from txnwatch.state.model.values import CoordinatorEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from txnwatch.state.text import Said, read_json

# The file.


class EvidenceStore(Protocol):
    """Durable storage for `StoredFindings`, which only this process writes."""

    def load(self) -> StoredFindings:
        """The stored findings; none if they cannot be read."""

    def keep(self, kept: StoredFindings) -> None:
        """Replaces the stored findings."""


class EvidenceFile:
    """An EvidenceStore."""

    def __init__(self, path: Path, report: Callable[[str], None]) -> None:
        self._path = path
        self._report = report
        self._said = Said[str]()

    def load(self) -> StoredFindings:
        """See EvidenceStore."""
        try:
            markers, *lines = self._path.read_text().splitlines()
            marked = tuple((str(incident_id), TimestampMs(int(at_ms))) for incident_id, at_ms in read_json(markers))
        except FileNotFoundError:
            return StoredFindings()
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as exc:
            self._report(f"{self._path}: evidence from before this start cannot be read, and is collected again: {exc}")
            return StoredFindings()
        return StoredFindings(tuple(self._evidence(lines)), marked)

    def _evidence(self, lines: Sequence[str]) -> Iterator[StoredEvidence]:
        problems = []
        for line in lines:
            try:
                yield decode_evidence(line)
            except ValueError as exc:
                problems.append(exc)
        if problems:
            unreadable = f"evidence about {len(problems)} of {len(lines)} hanging transactions from before this start"
            self._report(f"{self._path}: {unreadable} cannot be read, and is collected again: {problems[0]}")

    def keep(self, kept: StoredFindings) -> None:
        """See EvidenceStore."""
        lines = [json.dumps(kept.markers), *(encode_evidence(evidence) for evidence in kept.evidence)]
        text = "".join(f"{line}\n" for line in lines)
        temporary = self._path.with_suffix(".new")
        try:
            temporary.write_text(text)
            os.replace(temporary, self._path)  # noqa: PTH105 - atomic, also over an existing file
        except OSError as exc:
            if self._said.is_new("not saved"):
                self._report(f"{self._path}: evidence is not saved for the next start: {exc}")
        else:
            self._said.is_over("not saved")


# Its lines, which later versions of txnwatch read too. Pure.
#
# Evidence cannot be collected again if the coordinator has moved on. So unlike the state, it must survive an upgrade. A
# line has the name of each value: a later version ignores a name that it does not know, and uses the default of a name
# that the line does not have. A person can read it, too.
#
# Law: raise FORMAT if a field of `Witness` or of its view gets another meaning, or is needed and cannot have a default.
# Lines of another format are not used. What the process finds afterwards is correct without them, but an outcome that
# only they have is unknown then.

FORMAT = 2


def _with_names(of: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A copy of a record's type that is encoded as an object with the names of its fields."""
    fields = msgspec.structs.fields(of)
    named: list[Any] = [
        (field.name, field.type) if field.required else (field.name, field.type, field.default) for field in fields
    ]
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
    for_good: OutcomeDoubt | None = None
    log_epoch: CoordinatorEpoch | None = None
    is_begun_under_it: bool = False
    proof: LossProof = LossProof.NOTHING


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
        evidence.for_good,
        *((witness.log_epoch, witness.is_begun_under_it, witness.proof) if witness is not None else ()),
    )
    return msgspec.json.encode(line).decode()


def decode_evidence(line: str) -> StoredEvidence:
    """The evidence that `encode_evidence` wrote, also in an earlier or a later version.

    Raises:
        ValueError: a value is missing or has another type, the line has another format, or it is nested too deeply.
    """
    try:
        stored = _LINES.decode(line)
    except RecursionError:
        raise ValueError("expected evidence, found values that are nested too deeply") from None
    if stored.format != FORMAT:
        raise ValueError(f"expected format {FORMAT}, found {stored.format}")
    return StoredEvidence(
        (stored.topic_id, TopicPartition(stored.topic, stored.partition), stored.producer_id),
        SpanData(stored.start_offset, stored.producer_epoch, stored.last_sequence, stored.last_timestamp_ms),
        stored.outcome,
        Witness(
            CoordinatorView(**msgspec.structs.asdict(view)), stored.log_epoch, stored.is_begun_under_it, stored.proof
        )
        if (view := stored.witness) is not None
        else None,
        stored.for_good,
    )
