"""Takes the lease of a checkpoint that is not local, and reports a file system that cannot be reached in one line."""

from __future__ import annotations

from pyspark.sql import SparkSession

from txnwatch.state.model.ports import Log
from txnwatch.streaming.job.checkpoint import local_directory
from txnwatch.streaming.job.failures import Failure, failure_of, text_of
from txnwatch.streaming.job.hadoop_file_system import JVM_ERRORS
from txnwatch.streaming.job.hadoop_files import HadoopFiles
from txnwatch.streaming.job.lease import CheckpointLease

_ADVICE = "the file system of --checkpoint cannot be used: check its address"


def take_lease(session: SparkSession, checkpoint: str, log: Log, where: str) -> CheckpointLease | None:
    """The lease of this process; None for a local checkpoint, which has a lock. `where` names Spark's output.

    Raises:
        CheckpointError: another driver holds it.
        SparkError: the file system cannot be used.
    """
    if local_directory(checkpoint) is not None:
        return None
    try:
        files = HadoopFiles(session, checkpoint)
        files.numbers()
    except OSError as exc:
        cause = exc.__cause__
        failure = failure_of(text_of(cause if isinstance(cause, JVM_ERRORS) else exc))
        raise Failure(failure.cause, failure.advice or _ADVICE).error(where) from exc
    lease = CheckpointLease(checkpoint, files, log)
    lease.take()
    return lease
