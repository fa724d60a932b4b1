"""Settings of Hadoop's clients for a checkpoint that is not local: a host that does not answer is an error in time."""

from __future__ import annotations

from txnwatch.streaming.job.checkpoint import local_directory

# The defaults of the HDFS client are 45 connections of 20 s to a host that does not answer. Those of S3A are 8 times 6
# attempts with pauses that double, two minutes if each connection is refused.
_BOUNDED = {
    "spark.hadoop.ipc.client.connect.timeout": "5000",
    "spark.hadoop.ipc.client.connect.max.retries.on.timeouts": "2",
    "spark.hadoop.ipc.client.connect.max.retries": "5",
    "spark.hadoop.fs.s3a.retry.limit": "4",
    "spark.hadoop.fs.s3a.attempts.maximum": "3",
}


def file_system_settings(checkpoint: str) -> dict[str, str]:
    """The settings that an operator does not set otherwise."""
    return {} if local_directory(checkpoint) is not None else dict(_BOUNDED)
