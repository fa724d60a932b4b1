"""Starts the query of `txnwatch run`, restarts it with a backoff, and stops it after the current micro-batch."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

from txnwatch.app import Watch
from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.stop_request import StopRequest
from txnwatch.state.model.backoff import doubled
from txnwatch.state.model.errors import BrokerError, CheckpointError, QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.1
_SILENCE_S = 15.0
_FIRST_BATCH_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_BATCH_S = 1.4  # after the request to stop


def supervise(watch: Watch, session: SparkSession, stop: StopRequest) -> None:
    """Runs the query until the process is to stop.

    Raises:
        StopRequestedError: the stop was requested while the query started.
        TxnwatchError: the query cannot run, and a restart does not help.
    """
    failures = 0
    while not stop.is_set():
        try:
            ledger = stop.run(watch.open_ledger)
            if ledger.open_incidents:
                LOG.info(f"{len(ledger.open_incidents)} incidents are still open from before the start")
            query = stop.run(functools.partial(_started, watch, session))
        except (BrokerError, QueryError) as exc:
            pause_s = doubled(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures)
            LOG.warning(f"{exc}; next attempt in {pause_s:.0f} s")
            stop.wait(pause_s)
            failures += 1
            continue
        before = watch.batches
        _watch_query(watch, query, stop, session)
        if stop.is_set():
            if not stop.finish(functools.partial(_stop_between_batches, query), until_s=_BATCH_S):
                LOG.info("the current micro-batch is interrupted; the next start repeats it")
            return
        pause_s = doubled(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, failures)
        LOG.warning(f"the query ended: {_why(query)}; restarting it in {pause_s:.0f} s")
        _quietly(query.stop)
        stop.wait(pause_s)
        failures = 0 if watch.batches > before else failures + 1


def _stop_between_batches(query: StreamingQuery) -> None:
    """Waits for the end of the current micro-batch, and stops the query. The job lets no other micro-batch begin."""
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(0.01)
    _quietly(query.stop)


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


def _watch_query(watch: Watch, query: StreamingQuery, stop: StopRequest, session: SparkSession) -> None:
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


def _quietly(action: Any) -> None:  # noqa: ANN401 - a callable of py4j
    """Runs an action and ignores its errors: they must not end the watch, and are of no use."""
    with contextlib.suppress(Exception):
        action()
