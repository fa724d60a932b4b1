"""Where the checkpoint ends that the current one replaces (set_aside.py): the new query continues reading there.

Only the positions are used, which have one meaning in every version. They are those of the last committed micro-batch:
what a later one has read may not have reached the events topic.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.job.failure_table import may_pass
from txnwatch.streaming.job.failures import root_cause, text_of
from txnwatch.streaming.job.hadoop_file_system import JVM_ERRORS
from txnwatch.streaming.job.set_aside import PREVIOUS
from txnwatch.streaming.job.spark_logs import SparkLogs
from txnwatch.streaming.source.former_positions import FormerPosition, positions_in


class FormerPositionsError(CheckpointError):
    """The checkpoint that was replaced has no positions that can be read."""


def former_positions(session: SparkSession, checkpoint: str) -> dict[TopicPartition, FormerPosition]:
    """The positions of the checkpoint that was replaced.

    Raises:
        FormerPositionsError: it has none, or a file of it is missing or damaged.
        Py4JError, PySparkException: another attempt may succeed.
    """
    directory = f"{checkpoint.rstrip('/')}/{PREVIOUS}"
    try:
        logs = SparkLogs(session, directory)
        batch = logs.last_committed()
        if batch is None:
            raise FormerPositionsError("no micro-batch of it was committed")
        return positions_in(logs.offset(batch))
    except ValueError as exc:
        raise FormerPositionsError(f"offsets/{batch}: {exc}") from exc
    except JVM_ERRORS as exc:
        text = text_of(exc)
        cause = root_cause(text)
        if may_pass(cause, text):
            raise
        raise FormerPositionsError(cause) from exc
