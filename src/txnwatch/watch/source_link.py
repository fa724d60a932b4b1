"""What a watch gives to its Spark source: the settings at the start, and requests after each micro-batch.

Apart: it needs no connection, so tests use it without a watch; app.py composes the whole watch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from txnwatch.config import RunSettings
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.model.errors import QueryError
from txnwatch.state.model.findings import BucketCount, Finding, StrayWrite
from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.streaming.job.checkpoint import SideFiles
from txnwatch.streaming.job.state_directory import Former
from txnwatch.streaming.source.driver_file import DriverFile, FormerPositions, next_barrier_due
from txnwatch.streaming.source.options import LATEST
from txnwatch.streaming.source.planner import requests_after

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
        files: the files of txnwatch beside the checkpoint.
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
        "driverFile": str(files.driver_file),
    }


def _if_set(option: str, value: object | None) -> dict[str, str]:
    return {option: str(value)} if value is not None else {}


# What the source gets while the query runs, and which of its findings are not new.


class SourceLink:
    """What the driver tells the source, and what of its findings is not new.

    A state that continues those of other versions is rebuilt from the logs. Reading continues where they end, or below
    that where a transaction is open. What was read before is not reported again: its stray writes could be found with
    another beginning, and so with another incident id.

    Attributes:
        is_rebuilt: whether the state continues that of another version.
    """

    def __init__(self, path: Path) -> None:
        self._file = DriverFile(path)
        self.is_rebuilt = False
        self._former: FormerPositions = {}

    def begin(self, former: Former | None) -> None:
        """Before the query starts: what its state continues, None for nothing.

        Raises:
            QueryError: the file cannot be written now.
        """
        self.is_rebuilt = former is not None
        known = former.positions if former is not None else None
        self._former = known or {}
        try:
            self._file.begin(known)
        except OSError as exc:
            raise QueryError(f"{self._file.path} cannot be written: {exc.strerror}") from exc

    def write(self, emitted: Sequence[Finding], ledger: RunningLedger, buckets: int) -> None:
        """After a micro-batch: what to read again, and when the next barrier is due; the state has so many buckets."""
        counts = [finding for finding in emitted if isinstance(finding, BucketCount)]
        due = next_barrier_due(counts, buckets, can_wait=ledger.can_wait)
        self._file.write(requests_after(emitted, ledger.refuted), due)

    def unreported(self, emitted: Iterable[Finding]) -> list[Finding]:
        """The findings without the stray writes that the former query has found."""
        return [one for one in emitted if not (isinstance(one, StrayWrite) and self._was_found(one))]

    def _was_found(self, stray: StrayWrite) -> bool:
        former, offset = self._former.get(stray.partition), stray.joined.offset
        if former is None or former.offset is None or offset is None:
            return False
        return former.topic_id == stray.topic_id and offset < former.offset
