"""The options of the Spark source that the settings of a watch give."""

from __future__ import annotations

from collections.abc import Mapping

from txnwatch.config import RunSettings
from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.streaming.job.side_files import SideFiles
from txnwatch.streaming.source.options import LATEST


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
        is_rebuilt: whether the state is built anew from the logs, because an earlier checkpoint was moved aside.
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
