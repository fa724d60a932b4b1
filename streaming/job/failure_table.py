"""Failures of Spark that a retry cannot solve, with what an operator can do; and failures that may be temporary."""

from __future__ import annotations

import re
from typing import Final

# One of these patterns in the cause, and advice. The first match decides.
PERMANENT: Final = (
    (
        ("JAVA_HOME is not set", "/bin/java: No such file", "java: not found", "UnsupportedClassVersion"),
        "install Java 17 or later, and set JAVA_HOME to it",
    ),
    (
        ("Could not parse Master URL", "Master must ", "All masters are unresponsive", "External scheduler cannot"),
        "check --master: local[N], spark://host:port, yarn or k8s://https://host:port",
    ),
    (
        ("No FileSystem for scheme", r"Class org\.apache\.hadoop\.\S+ not found", "UnsupportedFileSystem"),
        "--checkpoint: add the jars of this file system to $SPARK_HOME/jars, or use a directory",
    ),
    (
        (
            *("PACKAGE_NOT_INSTALLED", "UNSUPPORTED_PACKAGE_VERSION", "ModuleNotFoundError", "ImportError"),
            *("No module named", "PYTHON_VERSION_MISMATCH", "Cannot run program"),
        ),
        "check PYSPARK_PYTHON: it must be a Python of the driver's version, with txnwatch and all its dependencies",
    ),
    (
        (
            *("CANNOT_LOAD_STATE_STORE", "CANNOT_LOAD_CHECKPOINT", "STATE_STORE", "ChecksumException"),
            *("malformed", "MALFORMED", "Incomplete log file", "log version", r"Json\w*Exception", "MismatchedInput"),
            *("ZipException", "zip END header", "RocksDBException", "StreamCorrupted", r"Batch \d+ doesn't exist"),
            *(
                "EOFException",
                "MISSING_METADATA",
                r"(FileNotFound|NoSuchFile)Exception: .*/(offsets|commits|state|metadata)\b",
            ),
        ),
        "restore --checkpoint from a copy, or give a new directory: open incidents come from the events topic",
    ),
    (
        ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming jobs detected"),
        "another driver uses this --checkpoint: one txnwatch run per checkpoint",
    ),
    (
        ("requirement failed", "IllegalArgumentException", "INVALID_CONF_VALUE"),
        "check the settings that the cause names",
    ),
)
# The state was written by a version of Spark, or for a program, whose state cannot be read. It is not damaged.
_OTHER_VERSION: Final = re.compile(
    r"INVALID_LOG_VERSION|supported log version is v\d+, but encountered v\d+|INVALID_CHANGE_LOG_READER_VERSION|"
    r"Cannot read RocksDB checkpoint metadata\. Expected v\d+, but found v\d+|"
    "STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION|"
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE|STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE|"
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
)
_TRANSIENT: Final = re.compile(
    "Connection refused|Connection reset|timed out|Timeout|No space left|UnknownHost|Temporary failure|"
    "Too many open files|Cannot allocate memory|OutOfMemory|PYTHON_WORKER_EXITED|EOFException"
)
# A connection that ends is an EOFException, too. This one is the end of a file of the state, in a Java stack trace.
_SHORT_CHANGELOG: Final = re.compile(r"EOFException[^\n]*(\n\s+at [^\n]*)*\n\s+at [^\n]*\.StateStoreChangelogReader")


def may_pass(cause: str, text: str) -> bool:
    """Whether this root cause of a failure is one that often ends without an operator; `text` has its stack trace."""
    return _TRANSIENT.search(cause) is not None and _SHORT_CHANGELOG.search(text) is None


def advice_for(causes: str) -> str:
    """What to do about these causes, one a line; empty if none of them is known to be permanent."""
    for patterns, advice in PERMANENT:
        if re.search("|".join(patterns), causes):
            return advice
    return ""


def is_of_another_version(causes: str) -> bool:
    """Whether one of these causes is a state of another format, which Spark refuses as a whole."""
    return _OTHER_VERSION.search(causes) is not None
