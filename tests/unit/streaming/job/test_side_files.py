"""The files beside a checkpoint: a clean stop leaves no temporary directory, and no local directory is touched."""

from __future__ import annotations

from pathlib import Path

from txnwatch.streaming.job.checkpoint import SideFiles


def test_the_temporary_directory_of_a_remote_checkpoint_is_removed() -> None:
    files = SideFiles("hdfs://namenode:8020/x")
    directory = files.spark_log.parent
    files.spark_log.write_text("a line")
    files.remove_temporary()
    assert not directory.exists()


def test_the_files_of_a_local_checkpoint_stay(tmp_path: Path) -> None:
    files = SideFiles(str(tmp_path))
    files.evidence.write_text("a line")
    files.remove_temporary()
    assert files.evidence.exists()
