"""The settings of a session of Spark: those of txnwatch, and those of an operator that txnwatch accepts.

Those of txnwatch are for a latency of milliseconds; each has its reason in docs/decisions/0002.

Law: a setting that txnwatch needs is never replaced silently. It is refused, with what to use instead.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text import NAMES_TO_HIDE

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_NEEDED: Final = {
    "spark.master": "the setting master",
    "spark.sql.shuffle.partitions": "the setting state_partitions",
    "spark.submit.deployMode": "spark-submit --deploy-mode",
    "spark.sql.streaming.stateStore.providerClass": "no other provider: the operator needs RocksDB",
    "spark.sql.session.timeZone": "no other time zone: txnwatch needs UTC",
    **dict.fromkeys(
        ("spark.hadoop.fs.file.impl", "spark.hadoop.fs.file.impl.disable.cache"),
        "no value: a repeated micro-batch has to replace its files of state",
    ),
}


def local_directory(checkpoint: str) -> Path | None:
    """The checkpoint's directory if it is on this machine's file system, else None."""
    if checkpoint.startswith("file:"):
        return Path(checkpoint.removeprefix("file://").removeprefix("file:"))
    return None if "://" in checkpoint else Path(checkpoint)


def conf_of(value: object) -> dict[str, str]:
    """The settings by key: from KEY=VALUE texts, from one text with several of them, or from a table of TOML.

    Raises:
        ValueError: it is none of these, or a key is not Spark's, or txnwatch sets it itself.
    """
    if isinstance(value, Mapping):
        settings = dict(_flat("", value))
    else:
        texts = shlex.split(value) if isinstance(value, str) else value
        if not isinstance(texts, list | tuple):
            raise ValueError("expected a table, or KEY=VALUE texts")  # noqa: TRY004 - pydantic wants a ValueError
        settings = dict(_pair(text) for text in texts)
    for key in settings:
        if not key.startswith("spark.") or key != key.strip():
            raise ValueError(f"expected keys that begin with `spark.`, found {key}")
        if key in _NEEDED:
            raise ValueError(f"{key}: expected {_NEEDED[key]}")
    return settings


def with_conf(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The settings of txnwatch with those of an operator; Java options are appended, all others replace a default."""
    options = " ".join(filter(None, (own.get(JAVA_OPTIONS), given.get(JAVA_OPTIONS))))
    return {**own, **given, **({JAVA_OPTIONS: options} if options else {})}


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """TOML reads an unquoted `spark.executor.memory` as three tables."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value)
        else:
            raise ValueError(f"{prefix}{name}: expected a text, a number, true or false")  # noqa: TRY004 - as above


def _pair(text: object) -> tuple[str, str]:
    key, sign, value = str(text).partition("=")
    if not sign or not key:
        raise ValueError("expected KEY=VALUE")
    return key, value


# Settings of Hadoop's clients for a checkpoint that is not local: a host that does not answer is an error in time.

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


# Which Spark master runs the query, and whether a checkpoint is reachable from all its hosts. Pure.
#
# Under spark-submit the driver's JVM exists before this process, and spark-submit has chosen the master.

DEFAULT_MASTER = "local[2,4]"
_PORT_OF_THE_JVM, _SECRET_OF_THE_JVM = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


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
    return _PORT_OF_THE_JVM in environ


def port_and_secret(port: int, secret: str) -> dict[str, str]:
    """The variables with which PySpark connects to a JVM that exists."""
    return {_PORT_OF_THE_JVM: str(port), _SECRET_OF_THE_JVM: secret}


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


# Spark's network settings: loopback for a local master, authentication and encryption for a cluster.
#
# Spark's RPC runs code that a client sends. By default it listens on an address of the host and authenticates nobody.

LOOPBACK: Final = "127.0.0.1"
# A local master and a Kubernetes master make a secret for each start. For a standalone cluster an operator sets
# `spark.authenticate.secret`; without one the driver does not start. See docs/hardening.md.
_AUTHENTICATED: Final = {"spark.authenticate": "true"}
_LOCAL: Final = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
_ENCRYPTED: Final = {
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",  # shuffle files have transactional ids
}
# Spark shows options in plans and in its log, and all settings on the pages of its web server; by default it would show
# a JAAS configuration. A setting of a file system may be a secret whatever its name is.
_REDACTED: Final = rf"(?i){NAMES_TO_HIDE}|jaas|url|^(?:spark\.hadoop\.)?fs\."
_HIDDEN: Final = {"spark.redaction.regex": _REDACTED, "spark.sql.redaction.options.regex": _REDACTED}


def network_settings(master: str) -> dict[str, str]:
    """The network settings for a master, where the operator has not set others."""
    return {**_HIDDEN, **_AUTHENTICATED, **(_LOCAL if is_local(master) else _ENCRYPTED)}


# The settings of one session.

_APP_NAME: Final = "txnwatch"
_RETAINED: Final = "20"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL_FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# Hive's jars in PySpark register ProxyLocalFileSystem for local files. Its rename keeps a file that exists, and Spark's
# file manager takes that for success: the state of a micro-batch that is repeated would be in memory only.
# Hadoop keeps a file system for each scheme, so the class would not count for one that spark-submit has used before.
_REPLACES_FILES: Final = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "spark.hadoop.fs.file.impl.disable.cache": "true",
}
_SOCKET_NAME_BYTES = len("/.00000000-0000-0000-0000-000000000000.sock")
_LONGEST_SOCKET_BYTES = 103  # macOS; Linux has 107
_OUR_JAVA_OPTIONS: Final = (
    # Spark parses a worker's traceback with a recursive regular expression. With a long traceback the default stack
    # overflows, which ends the query's thread without ending the query.
    "-Xss16m",
    # The JVM plans small batches and moves few bytes. The second compiler and the parallel collectors used most of its
    # CPU in the first minutes, without a benefit.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    # The default first heap is 1/64 of the machine's memory. The JVM fills and keeps all of it before a collection.
    "-Xms64m",
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is started with.

    Attributes:
        checkpoint: directory or URI. A local one uses a faster file manager. It does not stop a second driver from
            writing to the same checkpoint, so the caller must lock it.
        master: empty if Spark's own configuration has it.
        scratch: the directory for temporary files, unless `conf` has another.
        state_partitions: those of one state; another number has a state of its own.
        is_checkpoint_shared: whether all hosts reach the checkpoint, although it is a directory.
        conf: settings of the operator.
    """

    checkpoint: str
    master: str
    scratch: Path
    state_partitions: int = 1
    is_checkpoint_shared: bool = False
    conf: Mapping[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, str]:
        """The settings by key."""
        where = {"spark.master": self.master} if self.master else {}
        return {"spark.app.name": _APP_NAME, **where, **with_conf(self._own(), self.conf)}

    def _own(self) -> dict[str, str]:
        # Spark's own directories (spark.local.dir) are below that of the JVM unless an operator sets them.
        java_options = (*_OUR_JAVA_OPTIONS, f'-Djava.io.tmpdir="{self.scratch}"')
        settings = {
            "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.python.unix.domain.socket.enabled": str(_has_room_for_sockets(self.scratch)).lower(),
            # Spark starts a daemon for each set of environment variables. This setting is a variable of the operator's
            # workers only. Without it the source and the operator share the workers: 150 MB less (docs/decisions/0023).
            "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
            "spark.sql.shuffle.partitions": str(self.state_partitions),
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            # Spark keeps the last 1,000 of each for its UI, also without a UI: 60 MB after ten minutes.
            "spark.ui.retainedJobs": _RETAINED,
            "spark.ui.retainedStages": _RETAINED,
            "spark.ui.retainedTasks": _RETAINED,
            "spark.sql.ui.retainedExecutions": _RETAINED,
            JAVA_OPTIONS: " ".join(java_options),
            "spark.ui.showConsoleProgress": "false",
        }
        if local_directory(self.checkpoint) is not None:
            settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILES
            settings.update(_REPLACES_FILES)
        return settings


def _has_room_for_sockets(directory: Path) -> bool:
    """Whether the paths of Spark's Unix sockets in it are short enough for every operating system."""
    return len(os.fsencode(directory)) + _SOCKET_NAME_BYTES <= _LONGEST_SOCKET_BYTES
