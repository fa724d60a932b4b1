"""An error of Spark is its root cause in one line, with what to do if a retry cannot help."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkRuntimeError

from txnwatch.state.model.errors import (
    BrokerError,
    CheckpointError,
    ConfigError,
    LeaseNotRenewedError,
    QueryError,
    SinkError,
    SparkError,
    TxnwatchError,
    WireError,
)
from txnwatch.streaming.job.failures import (
    Failure,
    Repeats,
    failure_of,
    failure_of_ours,
    root_cause,
    start_error,
)

JAVA = """An error occurred while calling o109.start.
: java.lang.RuntimeException: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found
\tat org.apache.hadoop.conf.Configuration.getClass(Configuration.java:2688)
Caused by: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found
\tat org.apache.hadoop.conf.Configuration.getClassByName(Configuration.java:2592)
\t... 29 more
"""
PYTHON = """[STREAM_FAILED] Query [id = 7, runId = 8] terminated with exception: Traceback (most recent call last):
  File "worker.py", line 2, in main
    raise ValueError("of the first")
ValueError: of the first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 3, in main
    import pandas
ModuleNotFoundError: No module named 'pandas'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:572)
"""
STATE = """[STREAM_FAILED] Query [id = 7] terminated with exception: Job aborted due to stage failure
org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.
\tat org.apache.spark.sql.State.load(State.scala:1)
Caused by: java.io.IOException: not a log
"""
CALLBACK = f"""Traceback (most recent call last):
  File "query.py", line 3, in collect
    frame.collect()
py4j.protocol.Py4JJavaError: An error occurred while calling o115.collectToPython.
: {STATE.partition("stage failure")[2].strip()}
"""
NETWORK = STATE.replace("IOException: not a log", "ConnectException: Connection refused")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (JAVA, "ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"),
        (PYTHON, "ModuleNotFoundError: No module named 'pandas'"),
        (STATE, "IOException: not a log"),
        (CALLBACK, "IOException: not a log"),
        ("[PYTHON_WORKER_EXITED] a worker\nJVM stacktrace:\n  at org.apache", "[PYTHON_WORKER_EXITED] a worker"),
        ("An error occurred.\n: java.lang.IllegalStateException: bad\n\tat x", "IllegalStateException: bad"),
        ("", "no reason is known"),
    ],
)  # fmt: skip
def test_the_root_cause_is_one_line(text: str, cause: str) -> None:
    assert root_cause(text) == cause


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (JAVA, "add the jars"),
        (PYTHON, "check PYSPARK_PYTHON"),
        (STATE, "restore --checkpoint"),
        (CALLBACK, "restore --checkpoint"),
    ],
)
def test_a_failure_that_does_not_pass_has_an_advice(text: str, advice: str) -> None:
    error = failure_of(text).error("details: /spark.log")
    assert isinstance(error, SparkError)
    assert advice in str(error)
    assert "\n" not in str(error)


def test_a_failure_that_may_pass_has_none_although_it_is_about_the_state() -> None:
    assert failure_of(NETWORK) == Failure("ConnectException: Connection refused", may_pass=True)
    assert isinstance(failure_of(NETWORK).error(""), QueryError)


@pytest.mark.parametrize(
    ("reader", "is_damaged"),
    [
        ("org.apache.spark.sql.execution.streaming.state.StateStoreChangelogReaderV1.getNext(X.scala:506)", True),
        ("org.apache.hadoop.ipc.Client$IpcStreams.readResponse(Client.java:1923)", False),
    ],
    ids=["a changelog", "a connection"],
)
def test_the_end_of_a_changelog_is_damage_and_the_end_of_a_connection_may_pass(
    reader: str, *, is_damaged: bool
) -> None:
    stack = f"\tat java.base/java.io.DataInputStream.readInt(X.java:386)\n\tat {reader}\n\tat x.y(z:1)"
    failure = failure_of(f"SparkException: Job aborted\nCaused by: java.io.EOFException\n{stack}\n")
    assert failure.cause == "java.io.EOFException"
    assert failure.may_pass is not is_damaged
    assert ("restore --checkpoint" in failure.advice) is is_damaged


def test_a_checkpoint_that_the_source_refuses_is_its_own_error() -> None:
    with pytest.raises(CheckpointError, match=r"^of another cluster$"):
        failure_of("Traceback\n  txnwatch.state.model.errors.CheckpointError: of another cluster\n more")


def test_a_text_that_only_names_the_class_is_no_refusal() -> None:
    assert failure_of("java.io.IOException: found CheckpointError: x in a file") == Failure(
        "IOException: found CheckpointError: x in a file"
    )


def test_a_refusal_in_the_driver_is_raised_as_it_is() -> None:
    error = CheckpointError("of another cluster")
    with pytest.raises(CheckpointError) as info:
        failure_of_ours(error)
    assert info.value is error


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (LeaseNotRenewedError("for 34 s"), True),
        (BrokerError("no answer"), True),
        (SinkError("not delivered"), True),
        (WireError("length", 4, 7, "less than 5"), False),
        (ConfigError("Timeout, Connection refused"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_class_of_an_error_in_the_driver_decides_whether_it_may_pass(
    error: TxnwatchError,
    may_pass: bool,  # noqa: FBT001
) -> None:
    assert failure_of_ours(error) == Failure(str(error), may_pass=may_pass)


SCHEMA = STATE.replace(
    "java.io.IOException: not a log", "StateSchemaException: [STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] x"
)


@pytest.mark.parametrize(
    "text",
    [
        SCHEMA,
        STATE.replace("not a log", "The maximum supported log version is v1, but encountered v2. The"),
        STATE.replace("not a log", "Cannot read RocksDB checkpoint metadata. Expected v1, but found v2"),
        STATE.replace("not a log", "Cannot read RocksDB checkpoint metadata. Expected v1, but found damaged"),
        STATE.replace("not a log", "[STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA] x"),
        STATE.replace("not a log", "[INVALID_CHANGE_LOG_READER_VERSION] x"),
    ],
    ids=["a schema", "a log", "RocksDB", "damage", "an operator", "a changelog"],
)
def test_a_state_of_another_format_ends_the_watch_with_the_way_out(text: str) -> None:
    failure = failure_of(text)
    assert failure.advice.startswith("restore --checkpoint from a copy, or give a new directory")
    assert not failure.may_pass


def test_an_unknown_failure_is_given_up_after_five_times_in_a_row() -> None:
    repeats = Repeats()
    found = [repeats.add(Failure(f"of query {number}: strange")).advice for number in range(5)]
    assert found == ["", "", "", "", "5 starts in a row failed with it"]


def test_a_batch_in_between_starts_the_count_again() -> None:
    repeats = Repeats()
    for _ in range(3):
        assert [repeats.add(Failure("one")).advice for _ in range(4)] == [""] * 4
        repeats.clear()


@pytest.mark.parametrize("may_pass", [False, True])
def test_starts_that_fail_with_changing_causes_are_given_up_too(*, may_pass: bool) -> None:
    repeats = Repeats()
    found = [repeats.add(Failure(cause, may_pass=may_pass)).advice for cause in "abababab"]
    assert found == [*[""] * 7, "8 starts in a row failed, the last one with it"]


def test_after_a_batch_only_failures_that_may_pass_are_not_counted() -> None:
    repeats = Repeats()
    repeats.clear()
    found = [repeats.add(Failure(f"cause {'ab'[number % 2]}", may_pass=number % 3 == 0)).advice for number in range(12)]
    assert found == [*[""] * 11, "8 starts in a row failed, the last one with it"]


def test_before_the_first_batch_a_failure_that_may_pass_is_given_up_later_than_others() -> None:
    repeats = Repeats()
    found = [repeats.add(failure_of("java.net.UnknownHostException: nowhere")).advice for _ in range(8)]
    assert found == [*[""] * 7, "8 starts in a row failed with it"]


def test_after_a_batch_a_failure_that_may_pass_is_never_given_up() -> None:
    repeats = Repeats()
    repeats.clear()
    assert not any(repeats.add(failure_of(NETWORK)).advice for _ in range(50))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("JAVA_HOME is not set\n", "JAVA_HOME is not set; install Java 17"),
        (
            'WARNING: Using incubator\n26/11/22 22:27:08 WARN Utils: host\nException in thread "main" '
            "org.apache.spark.SparkException: Master must either be yarn or start with spark\n\tat org.apache.X\n",
            "SparkException: Master must either be yarn or start with spark; check --master",
        ),
    ],
)
def test_the_reason_of_a_jvm_that_did_not_start_is_in_its_output(output: str, expected: str) -> None:
    exited = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    error = start_error(exited, output, "details: /spark.log")
    assert isinstance(error, SparkError)
    assert expected in str(error)


def test_an_error_that_names_the_code_in_its_text_is_no_jvm_that_has_ended() -> None:
    error = start_error(RuntimeError("no JAVA_GATEWAY_EXITED"), "JAVA_HOME is not set\n", "details: /spark.log")
    assert "no JAVA_GATEWAY_EXITED; Spark did not start" in str(error)
