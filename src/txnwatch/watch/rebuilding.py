"""Reports where the reading of data begins if the state is rebuilt from the logs."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from txnwatch.state.model.ports import Log
from txnwatch.streaming.job.replaced_checkpoint import FormerPositionsError, replaces_another


def is_rebuilt(session: SparkSession, checkpoint: str, positions_file: Path, log: Log) -> bool:
    """Whether the checkpoint replaces another one. If so, the file has the positions at which reading continues.

    Raises:
        CheckpointError, QueryError, Py4JError: as `replaces_another`.
    """
    try:
        return replaces_another(session, checkpoint, positions_file)
    except FormerPositionsError as exc:
        positions_file.unlink(missing_ok=True)
        log.warning(
            f"the positions of the replaced checkpoint cannot be read: {exc}; data is read from the last stable "
            "offsets, so a stray write that was closed while no watcher ran is not reported"
        )
        return True
