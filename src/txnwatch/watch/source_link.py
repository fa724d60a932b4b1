"""What a watch gives to its Spark source: the settings at the start, and requests after each micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from txnwatch.config import RunSettings
from txnwatch.sinks.incidents.ledger import Ledger
from txnwatch.state.model.findings import BucketCount, Finding, StrayWrite
from txnwatch.state.model.values import CoordinatorAccess, TopicPartition
from txnwatch.streaming.job.checkpoint import SideFiles
from txnwatch.streaming.job.state_directory import Former
from txnwatch.streaming.source.driver_files import (
    FormerPosition,
    next_barrier_due,
    write_former_positions,
    write_next_barrier,
    write_requests,
)
from txnwatch.streaming.source.granted_requests import requests_after
from txnwatch.streaming.source.options import LATEST

# The options of the Spark source that the settings of a watch give.


def source_options(
    settings: RunSettings,
    properties: Mapping[str, str],
    files: SideFiles,
    access: CoordinatorAccess,
    *,
    is_rebuilt: bool,
    cores: int | None,
) -> dict[str, str]:
    """The options by name, as text.

    Args:
        settings: the settings of `txnwatch run`.
        properties: the client properties of the connection to Kafka.
        files: where the job and the source leave requests for each other.
        access: the view of the coordinators that was chosen.
        is_rebuilt: whether the state is built anew from the logs, and continues that of another version.
        cores: the cores of all executors; None before Spark runs.
    """
    return {
        **{f"kafka.{name}": value for name, value in properties.items()},
        "kafka.bootstrap.servers": settings.bootstrap_server,
        "subscribePattern": settings.topics,
        "censusPattern": settings.census_topics,
        "censusIntervalMs": str(settings.census_interval_ms),
        "healIntervalMs": str(settings.heal_interval_ms),
        **_if_set("foreignPattern", settings.foreign_topics),
        "coordinatorView": str(access),
        "startingOffsets": LATEST if is_rebuilt else settings.starting_offsets,
        "maxOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
        "maxBytesPerTrigger": str(settings.max_bytes_per_trigger),
        **_if_set("maxBytesPerSecond", settings.max_bytes_per_second),
        "maxReadMsPerTrigger": str(settings.max_read_ms_per_trigger),
        **_if_set("inputPartitions", settings.input_partitions or cores),
        "controlFile": str(files.rereads),
        "nextBarrierFile": str(files.next_barrier),
        **_if_set("formerPositionsFile", files.former_positions if is_rebuilt else None),
    }


def _if_set(option: str, value: object | None) -> dict[str, str]:
    return {option: str(value)} if value is not None else {}


# Writes what the driver asks its source for: ranges and censuses to read again, and when the next barrier is due.


def write_source_requests(files: SideFiles, emitted: Sequence[Finding], ledger: Ledger, buckets: int) -> None:
    """Writes both files after a micro-batch; `buckets` is the number of buckets of the state."""
    write_requests(files.rereads, requests_after(emitted, ledger.doubted))
    counts = [finding for finding in emitted if isinstance(finding, BucketCount)]
    due = next_barrier_due(counts, buckets, can_wait=ledger.can_wait)
    if due is not None:
        write_next_barrier(files.next_barrier, due)


# A state that is rebuilt from the logs, because the checkpoint has only states of other versions.
#
# Reading continues where they end, or below that where a transaction is open. What was read before is not reported
# again: its stray writes could be found with another beginning, and so with another incident id.


@dataclass(slots=True)
class Rebuilding:
    """What the state of this watch continues.

    Attributes:
        is_rebuilt: whether the state is built from the logs and continues that of another version.
    """

    is_rebuilt: bool = False
    _former: Mapping[TopicPartition, FormerPosition] = field(default_factory=dict)

    def take(self, former: Former | None, positions_file: Path) -> None:
        """Takes what the state continues, None for nothing; and writes the positions for the source."""
        self.is_rebuilt = former is not None
        known = former.positions if former is not None else None
        self._former = known or {}
        if known is not None:
            write_former_positions(positions_file, known)
        else:
            positions_file.unlink(missing_ok=True)

    def unreported(self, emitted: Iterable[Finding]) -> list[Finding]:
        """The findings without the stray writes that the former query has found."""
        return [one for one in emitted if not (isinstance(one, StrayWrite) and self._was_found(one))]

    def _was_found(self, stray: StrayWrite) -> bool:
        former, offset = self._former.get(stray.partition), stray.joined.offset
        if former is None or former.offset is None or offset is None:
            return False
        return former.topic_id == stray.topic_id and offset < former.offset
