"""Which Spark master runs the query, and whether a checkpoint is reachable from all its hosts. Pure.

Under spark-submit the driver's JVM exists before this process, and spark-submit has chosen the master.
"""

from __future__ import annotations

from collections.abc import Mapping

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.job.checkpoint import local_directory

DEFAULT_MASTER = "local[2,4]"
_PORT_OF_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"


def is_local(master: str) -> bool:
    """Whether the whole of Spark runs in the driver's JVM."""
    return master == "local" or master.startswith("local[")


def chosen_master(setting: str | None, environ: Mapping[str, str]) -> str:
    """The master of the setting; without one that of spark-submit, else the default.

    Empty if Spark's own configuration has it.
    """
    if setting is not None:
        return setting
    return "" if is_under_spark_submit(environ) else DEFAULT_MASTER


def is_under_spark_submit(environ: Mapping[str, str]) -> bool:
    """Whether spark-submit has started this process."""
    return _PORT_OF_SPARK_SUBMIT in environ


def check_checkpoint_place(checkpoint: str, master: str, *, is_shared: bool) -> None:
    """Checks that every host of the master can reach the checkpoint; an empty master is not known yet.

    `is_shared` is the operator's word that every host mounts the directory.

    Raises:
        ConfigError: it is a directory of this host, and the executors run on others.
    """
    if is_shared or not master or local_directory(checkpoint) is None or _is_on_this_host(master):
        return
    raise ConfigError(
        f"checkpoint: expected a file system that all hosts of the cluster reach, found the directory {checkpoint} and "
        f"master {master}: give a URI such as hdfs://namenode:8020/txnwatch or s3a://bucket/txnwatch, or set "
        "checkpoint_is_shared if every host mounts this directory"
    )


def _is_on_this_host(master: str) -> bool:
    return is_local(master) or master.startswith("local-cluster[")
