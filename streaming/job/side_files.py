"""The files of txnwatch itself, beside Spark's in the checkpoint directory: they are no part of the checkpoint.

If the checkpoint is not a local directory, they are in a temporary directory of this process. A clean stop removes that
directory. After an error or a kill it stays, because somebody may have to read the log of Spark in it; later starts
keep the newest one only.
"""

from __future__ import annotations

from typing import Final

from txnwatch.streaming.job.checkpoint import local_directory
from txnwatch.streaming.job.scratch import OwnDirectory

_PREFIX: Final = "txnwatch-files-"


class SideFiles:
    """The paths of the files.

    Attributes:
        spark_log: the output of Spark.
        rereads, next_barrier: what the job asks its source for, in terms of the current checkpoint.
        former_positions: the positions of the checkpoint that the current one replaces.
        evidence: what this watch has found itself; it outlives the checkpoint.
    """

    def __init__(self, checkpoint: str) -> None:
        directory = local_directory(checkpoint)
        self._temporary: OwnDirectory | None = None
        if directory is None:
            self._temporary = OwnDirectory(_PREFIX, keeps_last=True)
            directory = self._temporary.path
        self.spark_log = directory / "spark.log"
        self.rereads = directory / "txnwatch-rereads.json"
        self.next_barrier = directory / "txnwatch-next-barrier.json"
        self.former_positions = directory / "txnwatch-former-positions.json"
        self.evidence = directory / "txnwatch-evidence.jsonl"

    def checkpoint_is_new(self) -> None:
        """Removes the files that refer to the barriers and positions of a checkpoint that is no longer used."""
        self.rereads.unlink(missing_ok=True)
        self.next_barrier.unlink(missing_ok=True)

    def remove_temporary(self) -> None:
        """Removes the temporary directory, if there is one."""
        if self._temporary is not None:
            self._temporary.remove()
