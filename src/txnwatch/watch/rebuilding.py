"""A state that is rebuilt from the logs, because the checkpoint replaces one of another version.

Reading continues where the former checkpoint ends, or below that where a transaction is open. What was read before is
not reported again: its stray writes could be found with another beginning, and so with another incident id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from txnwatch.state.model.findings import Finding, StrayWrite
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import Log
from txnwatch.streaming.source.former_positions import FormerPosition, read_former_positions, write_former_positions

if TYPE_CHECKING:  # this import takes a second
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class Rebuilding:
    """What is known of the checkpoint that the current one replaces.

    Attributes:
        log: receives a warning if its positions cannot be read.
        is_rebuilt: whether the checkpoint replaces another one.
    """

    log: Log
    is_rebuilt: bool = False
    _former: Mapping[TopicPartition, FormerPosition] = field(default_factory=dict)

    def look(self, session: SparkSession, checkpoint: str, positions_file: Path) -> None:
        """Completes a move that was interrupted, and writes the positions for the source.

        Raises:
            CheckpointError: the move cannot be completed.
            Py4JError, PySparkException: the file system of the checkpoint cannot be used.
        """
        from txnwatch.streaming.job.former_checkpoint import FormerPositionsError, former_positions  # noqa: PLC0415
        from txnwatch.streaming.job.set_aside import complete_move  # noqa: PLC0415
        from txnwatch.streaming.job.spark_logs import SparkLogs  # noqa: PLC0415

        self.is_rebuilt = complete_move(session, checkpoint)
        if not self.is_rebuilt:
            return
        is_begun = SparkLogs(session, checkpoint).last_committed() is not None
        if not (is_begun and positions_file.exists()):
            try:
                write_former_positions(positions_file, former_positions(session, checkpoint))
            except (FormerPositionsError, OSError) as exc:
                with contextlib.suppress(OSError):
                    positions_file.unlink(missing_ok=True)
                if not is_begun:
                    self.log.warning(
                        f"the positions of the replaced checkpoint are not known: {exc}; data is read from the last "
                        "stable offsets, so a stray write that was closed while no watcher ran is not reported"
                    )
        self._former = read_former_positions(positions_file) or {}

    def unreported(self, emitted: Iterable[Finding]) -> list[Finding]:
        """The findings without the stray writes that the former query has found."""
        return [one for one in emitted if not (isinstance(one, StrayWrite) and self._was_found(one))]

    def _was_found(self, stray: StrayWrite) -> bool:
        former, offset = self._former.get(stray.partition), stray.joined.offset
        if former is None or former.offset is None or offset is None:
            return False
        return former.topic_id == stray.topic_id and offset < former.offset
