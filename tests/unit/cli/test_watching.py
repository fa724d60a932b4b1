"""What `run` does about a query that does not start, does not go on, or that nobody executes any more."""

from __future__ import annotations

import errno
import subprocess
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from support.log_lines import LogLines, log_restored
from txnwatch.cli import output, watching
from txnwatch.cli.watch_process import Reload, StopRequest
from txnwatch.page.store import PageStore
from txnwatch.state.model.clocks import ClockBase
from txnwatch.state.model.errors import (
    BrokerError,
    CheckpointError,
    LeaseNotRenewedError,
    SparkError,
    TxnwatchError,
)
from txnwatch.streaming.job.failures import Repeats
from txnwatch.streaming.job.query import BatchErrors
from txnwatch.watch.coverage import Coverage


def a_watch(batches: int = 0) -> SimpleNamespace:
    coverage = Coverage(LogLines(), is_ready=True)
    return SimpleNamespace(
        batches=batches,
        batch_errors=BatchErrors(),
        coverage=coverage,
        settings=SimpleNamespace(bootstrap_server="b:1"),
        options=SimpleNamespace(bootstrap=(), security=None),
        spark_log="/log/spark.log",
        begin_archive=lambda: None,
        page=PageStore(),
    )


@pytest.fixture(autouse=True)
def _no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "why_not_reached", lambda _bootstrap, _security: "the token endpoint is silent")


@pytest.fixture(autouse=True)
def _text_on_stdout() -> Iterator[None]:
    with log_restored():
        output.log_to_stdout("text")
        yield


NO_RELOAD = Reload(pytest.fail)


def of_spark_submit(nano_time: Callable[[], int]) -> Any:
    """A session whose JVM another program has started."""
    system = SimpleNamespace(nanoTime=nano_time)
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None, _jvm=SimpleNamespace(System=system)))


NO_SESSION = of_spark_submit(lambda: 1)


def a_query(message: str) -> Any:
    return SimpleNamespace(isActive=True, status={"message": message})


@pytest.mark.parametrize("batches_before", [0, 3], ids=["at the start", "after some batches"])
def test_a_query_without_a_thread_is_over(monkeypatch: pytest.MonkeyPatch, batches_before: int) -> None:
    monkeypatch.setattr(watching, "POLL_S", 0.001)
    monkeypatch.setattr(watching, "SILENCE_S", 0.02)
    watch = a_watch(batches_before)
    asked: list[bool] = []

    def is_executing(_: object) -> bool:
        asked.append(len(asked) < 2)
        return asked[-1]

    monkeypatch.setattr(watching, "is_executing", is_executing)
    waiting = threading.Thread(
        target=watching.watch_query,
        args=(watch, a_query("Getting offsets"), StopRequest(), NO_SESSION, NO_RELOAD),
    )
    waiting.start()
    waiting.join(10.0)
    assert not waiting.is_alive()
    assert asked == [True, True, False], "it is asked as long as there is silence, and believed"


@pytest.mark.parametrize("batches_before", [0, 3], ids=["at the start", "started again"])
def test_a_missing_first_batch_is_reported_at_growing_pauses_with_the_place_of_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], batches_before: int
) -> None:
    seconds, stop, watch = 0.0, StopRequest(), a_watch(batches_before)

    def second(_: float) -> bool:
        nonlocal seconds
        seconds += 1
        if seconds == 400:
            watch.batches += 1
        return seconds > 600

    monkeypatch.setattr(stop, "wait", second)
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: seconds))
    monkeypatch.setattr(watching, "is_executing", lambda _: True)
    watching.watch_query(watch, a_query("Getting offsets"), stop, NO_SESSION, NO_RELOAD)
    first, *later = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert first == (
        "warning: no micro-batch has completed since the start, 32 s ago; "
        "if the brokers answer, the reason is in Spark's output: /log/spark.log"
    )
    assert [line.split(";")[0].rpartition(", ")[2] for line in later[:3]] == ["64 s ago", "128 s ago", "256 s ago"]
    assert later[3:] == [
        "ready: every transaction is being watched",
        "warning: no broker of b:1 has answered for 15 s; a new connection fails: the token endpoint is silent",
    ]
    output.LOG.warning("a webhook does not answer")
    assert watch.page.warning.text == later[4].removeprefix("warning: "), "no other warning is the cause"


def test_a_micro_batch_that_does_not_end_is_not_taken_for_brokers_that_do_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds, stop, watch = 0.0, StopRequest(), a_watch(3)

    def second(_: float) -> bool:
        nonlocal seconds
        seconds += 1
        watch.batches += seconds in {1, 90}
        return seconds > 100

    monkeypatch.setattr(stop, "wait", second)
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: seconds))
    monkeypatch.setattr(watching, "is_executing", lambda _: True)
    assert watching.watch_query(watch, a_query("Processing new data"), stop, NO_SESSION, NO_RELOAD) is None
    assert [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "ready: every transaction is being watched",
        "warning: the current micro-batch has not completed for 15 s: a broker throttles its reads, a disk is slow, or "
        "the machine is busy",
        "micro-batches complete again",
    ]


@pytest.mark.parametrize(
    ("set_by_ms", "why"),
    [
        (-3_600_000, "the clock of this machine was set back by 3600 s"),
        (5_500, "the clock of this machine was set forward by 5 s"),
        (900, None),
    ],
)
def test_a_query_starts_again_after_the_clock_was_set(
    monkeypatch: pytest.MonkeyPatch, set_by_ms: int, why: str | None
) -> None:
    bases = iter([ClockBase("boot", 7), ClockBase("boot", 7)])
    monkeypatch.setattr(watching, "clock_base", lambda: next(bases, ClockBase("boot", 7 + set_by_ms)))
    stop, looks = StopRequest(), iter(range(5))
    monkeypatch.setattr(stop, "wait", lambda _: next(looks, None) is None)
    assert watching.watch_query(a_watch(3), a_query("Waiting"), stop, NO_SESSION, NO_RELOAD) == why


class Starts:
    """A watch whose query starts at the third attempt, and asks to be stopped then."""

    batches, spark_log = 0, "/log/spark.log"

    def __init__(self, stop: StopRequest, *errors: Exception) -> None:
        self.stop, self.errors, self.page = stop, list(errors), PageStore()

    def open_ledger(self) -> SimpleNamespace:
        return SimpleNamespace(open_incidents=[])

    def start_query(self, _: object) -> SimpleNamespace:
        if self.errors:
            raise self.errors.pop(0)
        self.stop.set()
        return SimpleNamespace(isActive=False, stop=lambda: None)


def test_a_query_that_spark_cannot_plan_is_one_line_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = StopRequest()
    monkeypatch.setattr(watching, "FIRST_PAUSE_S", 0.001)
    broken = PySparkRuntimeError("[PYTHON_WORKER_EXITED] a worker went away\nJVM stacktrace:\n  at org.apache...")
    starts: Any = Starts(stop, broken, Py4JError("the JVM is gone"))
    watching.supervise(starts, NO_SESSION, stop, NO_RELOAD)  # type: ignore[arg-type]
    first, second, step = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert step == "3 of 3: the first micro-batches read the logs"
    assert first == (
        "warning: the query could not be started: [PYTHON_WORKER_EXITED] a worker went away; "
        "more details may be in Spark's output: /log/spark.log; next attempt in 0 s"
    )
    assert "the JVM is gone" in second


class Endings:
    """A watch whose queries end, each after so many micro-batches; None is an events topic that cannot be read."""

    spark_log = "/log/spark.log"

    def __init__(self, *batches: int | None) -> None:
        self.left = list(batches)
        self.batches = 0
        self.batch_errors = BatchErrors()
        self.coverage = Coverage(LogLines(), is_ready=True)
        self.options = SimpleNamespace(bootstrap=(), security=None)
        self.page = PageStore()

    def open_ledger(self) -> SimpleNamespace:
        if self.left[0] is None:
            self.left.pop(0)
            raise BrokerError("events: no answer")
        return SimpleNamespace(open_incidents=[])

    def start_query(self, _: object) -> Any:
        self.batches += self.left.pop(0) or 0
        return SimpleNamespace(isActive=False, stop=lambda: None, exception=lambda: None)


@pytest.mark.parametrize(
    ("endings", "left", "message"),
    [
        ([None] * 9, 1, "^events: no answer; 8 starts in a row failed with it$"),
        ([0] * 9, 4, "^Spark: it ended without an error; 5 starts in a row failed with it; more details"),
        ([None, 0] * 5, 2, "^Spark: it ended without an error; 8 starts in a row failed, the last one with it; more"),
        ([0, 0, 0, 0, 3, 0, 0, 0, 0, 0], 1, "without an error; 5 starts in a row failed with it; more details"),
    ],
    ids=["the events topic", "the query", "both in turn", "it worked in between"],
)
def test_no_failure_is_retried_for_ever(
    monkeypatch: pytest.MonkeyPatch, endings: list[int | None], left: int, message: str
) -> None:
    monkeypatch.setattr(watching, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(watching, "POLL_S", 0.0)
    watch: Any = Endings(*endings)
    with pytest.raises(TxnwatchError, match=message):
        watching.supervise(watch, NO_SESSION, StopRequest(), NO_RELOAD)
    assert len(watch.left) == left


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("exit 56", SparkError, "the JVM of Spark ended with exit code 56; start txnwatch again"),
        ("kill -9 $$", SparkError, "the JVM of Spark was killed by signal 9; start txnwatch again"),
        ("sleep 60", Py4JError, "isActive"),
    ],
    ids=["exit code", "signal", "it runs"],
)
def test_a_jvm_that_has_ended_is_named(script: str, error: type[Exception], message: str) -> None:
    with subprocess.Popen(["sh", "-c", script]) as jvm:
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=jvm)))
        with pytest.raises(error, match=message):
            supervise_without_a_jvm(session)
        jvm.kill()


def refused() -> int:
    raise ConnectionRefusedError


def lost() -> int:
    raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize(
    ("nano_time", "error", "message"),
    [
        (refused, SparkError, "the JVM of Spark has ended; .* may be in the output of spark-submit"),
        (lost, SparkError, "the JVM of Spark has ended; start txnwatch again"),
        (lambda: 1, Py4JError, "isActive"),
    ],
    ids=["refused", "lost", "it answers"],
)
def test_a_jvm_of_spark_submit_that_has_ended_is_named(
    nano_time: Callable[[], int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        supervise_without_a_jvm(of_spark_submit(nano_time))


def supervise_without_a_jvm(session: Any) -> None:
    watch: Any = a_watch()

    def open_ledger() -> None:
        raise Py4JError("An error occurred while calling isActive")

    watch.open_ledger = open_ledger
    watching.supervise(watch, session, StopRequest(), NO_RELOAD)


def test_a_query_that_refuses_its_checkpoint_is_not_tried_again() -> None:
    stop = StopRequest()
    wrong = PySparkRuntimeError("Traceback\n  txnwatch.state.model.errors.CheckpointError: of another cluster\n")
    with pytest.raises(CheckpointError, match="of another cluster"):
        watching.supervise(Starts(stop, wrong), None, stop, NO_RELOAD)  # type: ignore[arg-type]


ENDED = SimpleNamespace(exception=lambda: PySparkRuntimeError("[STREAM_FAILED] Traceback\n  a text that is not read"))


@pytest.mark.parametrize("error", [CheckpointError("was taken over"), LeaseNotRenewedError("was not renewed")])
def test_a_query_that_txnwatch_has_ended_is_judged_by_the_error_itself(error: TxnwatchError) -> None:
    watch = a_watch()
    watch.batch_errors.last = error
    if isinstance(error, LeaseNotRenewedError):
        assert watching.why_it_ended(ENDED, Repeats(), watch) == "was not renewed"  # type: ignore[arg-type]
        return
    with pytest.raises(CheckpointError) as info:
        watching.why_it_ended(ENDED, Repeats(), watch)  # type: ignore[arg-type]
    assert info.value is error


def test_a_disk_that_is_full_ends_no_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("builtins.print", is_full)
    output.LOG.info("still there")


def test_a_reader_that_has_gone_away_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", is_gone)
    with pytest.raises(BrokenPipeError):
        output.LOG.info("anybody?")
