"""`txnwatch run`: the continuous detector.

SIGTERM and Ctrl-C stop it between two micro-batches, so that the next start continues exactly there. A query that ends
by itself is restarted with a backoff, unless its error is permanent.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from txnwatch.app import Watch
from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.log_output import log_incident, log_to_stdout
from txnwatch.cli.settings_flags import add_flags, flag_values
from txnwatch.config import RunSettings, load_settings
from txnwatch.state.model.backoff import doubled
from txnwatch.state.model.errors import BrokerError, CheckpointError, QueryError
from txnwatch.streaming.job.checkpoint import locked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.1
_SILENCE_S = 15.0
_FIRST_BATCH_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_STOP_PATIENCE_S = 30.0
_INSISTING_S = 1.0  # a signal to a process and to its group counts once


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run", help="watch a cluster continuously", description="Watches a cluster until it is stopped."
    )
    add_flags(parser, RunSettings)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Runs until it is stopped; exit code 0 after a clean stop."""
    settings = load_settings(flag_values(parsed, RunSettings), parsed.config)
    log_to_stdout(settings.log_format)
    watch = Watch(settings, log=LOG, on_event=log_incident)
    stop = threading.Event()
    with _signals(stop):
        watch.check()
        with locked(watch.checkpoint), watch.served_metrics():
            partitions = sum(len(topic.partitions) for topic in watch.topics)
            LOG.info(f"watching cluster {watch.cluster_id}: {len(watch.topics)} topics, {partitions} partitions")
            LOG.info(f"checkpoint {watch.checkpoint}, Spark's output in {watch.spark_log}")
            session = watch.start_spark()
            with _signals(stop):  # Spark has installed its own handler of Ctrl-C
                try:
                    _supervise(watch, session, stop)
                finally:
                    watch.close()
                    _quietly(session.stop)
    told = "".join(f", {count} {what}" for what, count in sorted(watch.counts.items()))
    LOG.info(f"stopped after {watch.batches} micro-batches{told}")
    return 0


def _supervise(watch: Watch, session: SparkSession, stop: threading.Event) -> None:
    failures = 0
    while not stop.is_set():
        try:
            ledger = watch.open_ledger()
            if ledger.open_incidents:
                LOG.info(f"{len(ledger.open_incidents)} incidents are still open from before the start")
            query = _started(watch, session)
        except (BrokerError, QueryError) as exc:
            pause_s = doubled(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures)
            LOG.warning(f"{exc}; next attempt in {pause_s:.0f} s")
            stop.wait(pause_s)
            failures += 1
            continue
        before = watch.batches
        _watch_query(watch, query, stop, session)
        if stop.is_set():
            _stop_between_batches(query)
            return
        pause_s = doubled(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures)
        LOG.warning(f"the query ended: {_why(query)}; restarting it in {pause_s:.0f} s")
        _quietly(query.stop)
        stop.wait(pause_s)
        failures = 0 if watch.batches > before else failures + 1


def _started(watch: Watch, session: SparkSession) -> StreamingQuery:
    """Starts the query.

    Raises:
        CheckpointError: the error is permanent.
        QueryError: Spark could not plan the query, for example because its Python workers do not start.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        return watch.start_query(session)
    except (Py4JError, PySparkException) as exc:
        why = f"the query could not be started: {_told_by(str(exc))}"
        raise QueryError(f"{why}; more details may be in Spark's output: {watch.spark_log}") from exc


def _watch_query(watch: Watch, query: StreamingQuery, stop: threading.Event, session: SparkSession) -> None:
    """Waits until the query ends or is to stop; reports when it is ready, and when micro-batches stop."""
    from txnwatch.streaming.job.query import is_executing  # noqa: PLC0415

    first = seen = watch.batches
    since, looks_s, first_s = time.monotonic(), 0.0, _FIRST_BATCH_S
    is_told = is_silent = False
    while not stop.wait(_POLL_S) and query.isActive:
        waited_s = time.monotonic() - since
        if watch.batches != seen:
            if watch.coverage.is_ready and not is_told:
                LOG.info(f"ready: {watch.coverage.reach}")
                is_told = True
            elif is_silent:
                LOG.info("the brokers answer again")
            seen, since, is_silent = watch.batches, time.monotonic(), False
        elif time.monotonic() > looks_s and waited_s > _SILENCE_S:
            looks_s = time.monotonic() + _SILENCE_S
            if not is_executing(session):
                return
            if seen == first and waited_s > first_s:
                where = f"if the brokers answer, the reason is in Spark's output: {watch.spark_log}"
                LOG.warning(f"no micro-batch has completed since the start, {waited_s:.0f} s ago; {where}")
                first_s *= 2
            elif seen != first and not is_silent:
                LOG.warning(f"no broker of {watch.settings.bootstrap_server} has answered for {_SILENCE_S:.0f} s")
                is_silent = True


def _stop_between_batches(query: StreamingQuery) -> None:
    """Stops the query after the current micro-batch, or after 30 s.

    A stop inside a micro-batch is safe, but it fills the log and the next start repeats that micro-batch.
    """
    deadline = time.monotonic() + _STOP_PATIENCE_S
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.01)
    _quietly(query.stop)


def _why(query: StreamingQuery) -> str:
    """The reason why the query ended.

    Raises:
        CheckpointError: the error is permanent.
    """
    error = query.exception()
    return _told_by(str(error) if error is not None else "its thread is gone, the reason may be in Spark's output")


def _told_by(text: str) -> str:
    """The first line of an error of Spark.

    Raises:
        CheckpointError: the text has one, so the error is permanent.
    """
    marker = f"{CheckpointError.__name__}: "
    if marker in text:
        raise CheckpointError(text.partition(marker)[2].splitlines()[0])
    return text.strip().splitlines()[0]


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    asked_at = 0.0

    def on_signal(number: int, _: FrameType | None) -> None:
        nonlocal asked_at
        if stop.is_set() and time.monotonic() - asked_at > _INSISTING_S:
            raise KeyboardInterrupt
        if not stop.is_set():
            LOG.info(f"{signal.Signals(number).name}: stopping after the current micro-batch")
            asked_at = time.monotonic()
            stop.set()

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _quietly(action: Any) -> None:  # noqa: ANN401 - a callable of py4j
    """Runs an action and ignores its errors: they must not end the watch, and are of no use."""
    with contextlib.suppress(Exception):
        action()
