"""The watch of `txnwatch run`, in the order of its start: checks, the page, Spark, the query; and its end.

The query is restarted with a backoff, and stopped after the current micro-batch. watch_process.py imports this module
when the JVM of Spark has begun.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from txnwatch.app import Watch
from txnwatch.cli.output import LOG, log_incident, log_step
from txnwatch.cli.watch_process import CLOSE_S, KILL_S, Reload, StepTooLongError, StopRequest
from txnwatch.config import RunSettings
from txnwatch.named_files import NamedFiles
from txnwatch.page.served_page import PageSite
from txnwatch.page.site_files import OwnHosts
from txnwatch.spark_start import SparkStart
from txnwatch.state.model.clocks import set_by_ms
from txnwatch.state.model.errors import AuthorizationError, BrokerError, CheckpointError, QueryError
from txnwatch.state.model.pauses import GrowingPause
from txnwatch.state.text import Said
from txnwatch.streaming.client.clock import clock_base, wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.job.checkpoint import locked
from txnwatch.streaming.job.failures import Failure, Repeats, end_jvm, failure_of, failure_of_ours, text_of
from txnwatch.streaming.job.query import QUERY_NAME
from txnwatch.web.server import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_LEASE_S = 120.0  # includes the pause before an abandoned lease is taken over


def new_watch(settings: RunSettings, named: NamedFiles, stop: StopRequest, reload: Reload) -> Watch:
    """The watch of this process, before anything is checked.

    Raises:
        TxnwatchError: settings do not fit together, or the table of owners has an error.
    """
    is_stopping = functools.partial(_may_no_batch_begin, stop, reload)
    return Watch(settings, named, log=LOG, on_event=log_incident, is_stopping=is_stopping)


def _may_no_batch_begin(stop: StopRequest, reload: Reload) -> bool:
    return stop.is_set() or reload.is_due


def run_until_stopped(watch: Watch, begun: SparkStart, stop: StopRequest, reload: Reload) -> None:
    """Runs the watch until the process is to stop.

    Raises:
        StopRequestedError: the stop was requested before the query ran.
        TxnwatchError: a check fails, or the query cannot run.
    """
    stop.run(watch.check)
    reload.certificates, reload.timeout_limit = watch.certificates, watch.timeout_limit
    with locked(watch.checkpoint), contextlib.ExitStack() as serving:
        settings = watch.settings
        page = PageSite(watch.page, wall_clock_ms, watch.ends, OwnHosts(settings.http_names), settings.cluster_name)
        reload.server = serving.enter_context(served(watch.settings, watch.metrics, watch.log, page))
        partitions = sum(len(topic.partitions) for topic in watch.topics)
        name = f"{settings.cluster_name} ({watch.cluster_id})" if settings.cluster_name else watch.cluster_id
        LOG.info(f"watching cluster {name}: {len(watch.topics)} topics, {partitions} partitions")
        LOG.info(f"checkpoint {watch.checkpoint}, Spark's output in {watch.spark_log}")
        log_step("1 of 3: Spark starts")
        session = stop.run(functools.partial(watch.start_spark, begun))
        log_step("2 of 3: the published incidents are read, and Spark plans the query")
        try:
            with _leased(watch, session, stop):
                supervise(watch, session, stop, reload)
        finally:
            _close(watch, session, begun, stop, serving)


def _leased(watch: Watch, session: SparkSession, stop: StopRequest) -> contextlib.AbstractContextManager[None]:
    try:
        return stop.run(functools.partial(watch.take_lease, session, lambda: not stop.has_left_steps), limit_s=_LEASE_S)
    except StepTooLongError:
        raise CheckpointError(
            f"--checkpoint {watch.checkpoint}: its file system has not answered for {_LEASE_S:.0f} s: check its "
            f"address; details: {watch.spark_log}"
        ) from None


def _close(
    watch: Watch, session: SparkSession, begun: SparkStart, stop: StopRequest, serving: contextlib.ExitStack
) -> None:
    """Closes Spark, the destinations and the HTTP server at the same time; kills the JVM if it does not end."""
    watch.end_archive()
    if not stop.finish(functools.partial(end_jvm, session), watch.close, serving.close, until_s=CLOSE_S):
        stop.finish(begun.kill, until_s=KILL_S)


POLL_S = 0.1
SILENCE_S = 15.0
_FIRST_BATCH_S = 30.0
FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_PROCESSING = "Processing new data"  # Spark's text
_SLOW = "a broker throttles its reads, a disk is slow, or the machine is busy"
_WATCH_S = 0.6  # after the request to stop: Spark may stand still, so that no call of it returns
_BATCH_S = 1.2  # after the request to stop


def supervise(watch: Watch, session: SparkSession, stop: StopRequest, reload: Reload) -> None:
    """Runs the query until the process is to stop.

    Raises:
        StopRequestedError: the stop was requested while the query started, or Spark does not answer.
        TxnwatchError: the query cannot run, and a restart does not help.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's packages take a second to import

    from txnwatch.streaming.job.failures import check_jvm  # noqa: PLC0415

    pauses, repeats = GrowingPause(FIRST_PAUSE_S, _LONGEST_PAUSE_S), Repeats()
    while not stop.is_set():
        before = watch.batches
        try:
            why = _run_query(watch, session, stop, reload, repeats)
            if why is None:
                continue
            message = f"the query ended: {why}; restarting it"
        except (BrokerError, QueryError) as exc:
            if isinstance(exc, AuthorizationError) and watch.batches == 0:
                raise  # an operator is needed; a right that is taken away later may come back
            if isinstance(exc, BrokerError):  # a QueryError has been counted where it was raised
                _check_repeats(exc, repeats)
            stop.run(functools.partial(check_jvm, session, watch.spark_log, wait_s=0.0))
            message = f"{exc}; next attempt"
        except (Py4JError, ConnectionError):
            stop.run(functools.partial(check_jvm, session, watch.spark_log))
            raise
        has_progressed = watch.batches > before
        pause_s = pauses.next()
        _report(watch, f"{message} in {pause_s:.0f} s")
        stop.wait(pause_s)
        if has_progressed:
            pauses.end()


def _report(watch: Watch, cause: str) -> None:
    """Says why nothing is evaluated: in the log, and on the page if nothing is known there."""
    LOG.warning(cause)
    watch.page.warn(cause, wall_clock_ms())


def _run_query(watch: Watch, session: SparkSession, stop: StopRequest, reload: Reload, repeats: Repeats) -> str | None:
    """Runs the query until it ends. Returns why it ended, None if the stop or a reload was requested.

    Raises:
        BrokerError, QueryError: it could not be started, and a later attempt may succeed.
        TxnwatchError: as `supervise`.
    """
    reload.is_due, before = False, watch.batches
    ledger = stop.run(watch.open_ledger)
    if ledger.open_incidents:
        LOG.info(f"{len(ledger.open_incidents)} incidents are still open from before the start")
    query = stop.run(functools.partial(_started, watch, session, repeats))
    why = stop.run(functools.partial(watch_query, watch, query, stop, session, reload), grace_s=_WATCH_S)
    if watch.batches > before:
        repeats.clear()
    if stop.is_set():
        if not stop.finish(functools.partial(_stop_between_batches, query), until_s=_BATCH_S):
            LOG.info("the current micro-batch is interrupted; the next start repeats it")
        return None
    if reload.is_due:
        stop.run(functools.partial(_stop_between_batches, query))
        return None
    try:
        return why or why_it_ended(query, repeats, watch)
    finally:
        _ignoring_errors(query.stop)


def _check_repeats(error: BrokerError, repeats: Repeats) -> None:
    """Counts an error that came before the query was started.

    Raises:
        BrokerError: it has come so often that another start does not help.
    """
    failure = repeats.add(failure_of_ours(error))
    if failure.advice:
        raise BrokerError(f"{failure.cause}; {failure.advice}") from error


def _stop_between_batches(query: StreamingQuery) -> None:
    """Waits for the end of the current micro-batch, and stops the query. The job lets no other micro-batch begin."""
    while query.isActive and query.status["isTriggerActive"]:
        time.sleep(0.01)
    _ignoring_errors(query.stop)


def _started(watch: Watch, session: SparkSession, repeats: Repeats) -> StreamingQuery:
    """Starts the query.

    Raises:
        CheckpointError, SparkError: the error is permanent.
        QueryError: Spark could not plan the query, for example because its Python workers do not start.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        query = watch.start_query(session)
    except (Py4JError, PySparkException, ImportError) as exc:
        failure = repeats.add(failure_of(text_of(exc)))
        error = failure.error(f"more details may be in Spark's output: {watch.spark_log}")
        raise error if failure.advice else QueryError(f"the query could not be started: {error}") from exc
    if watch.batches == 0:
        log_step("3 of 3: the first micro-batches read the logs")
    return query


def watch_query(
    watch: Watch, query: StreamingQuery, stop: StopRequest, session: SparkSession, reload: Reload
) -> str | None:
    """Waits until the query ends or has to end; reports when it is ready, and when micro-batches stop.

    Returns why the query has to start again although it runs, None if it need not. Spark waits for a time of the wall
    clock between two micro-batches: if that clock is set back by an hour, the next one comes an hour later.
    """
    first = seen = watch.batches
    since, looks_s, late = time.monotonic(), 0.0, GrowingPause(_FIRST_BATCH_S, math.inf)
    said = Said[str]()
    base = clock_base()
    while not stop.wait(POLL_S) and query.isActive and not reload.apply(watch):
        waited_s = time.monotonic() - since
        set_ms = set_by_ms(base, clock_base())
        if set_ms:
            return f"the clock of this machine was set {'forward' if set_ms > 0 else 'back'} by {abs(set_ms) // 1000} s"
        if watch.batches != seen:
            is_back = said.is_over("silent")
            if watch.coverage.is_ready and said.is_new("ready"):
                LOG.info(f"ready: {watch.coverage.reach}")
                watch.begin_archive()
            elif is_back:
                LOG.info("micro-batches complete again")
            seen, since = watch.batches, time.monotonic()
        elif time.monotonic() > looks_s and waited_s > SILENCE_S:
            looks_s = time.monotonic() + SILENCE_S
            if not is_executing(session):
                return None
            if seen == first and waited_s > late.length:
                where = f"if the brokers answer, the reason is in Spark's output: {watch.spark_log}"
                _report(watch, f"no micro-batch has completed since the start, {waited_s:.0f} s ago; {where}")
                late.next()
            elif seen != first and said.is_new("silent"):
                _report(watch, _silence(query, watch))
    return None


def is_executing(session: SparkSession) -> bool:
    """Whether the query's thread is alive. If an Error of the JVM ends it, the query stays active forever."""
    assert session.sparkContext._jvm is not None  # noqa: SLF001 - Spark has no public API for it
    threads = session.sparkContext._jvm.java.lang.Thread.getAllStackTraces().keySet()  # noqa: SLF001
    return any(thread.getName().startswith(f"stream execution thread for {QUERY_NAME}") for thread in threads)


def _silence(query: StreamingQuery, watch: Watch) -> str:
    """What is known about a query whose micro-batches stop: a batch does not end, or there is nothing to begin one."""
    if query.status["message"] == _PROCESSING:
        return f"the current micro-batch has not completed for {SILENCE_S:.0f} s: {_SLOW}"
    why = why_not_reached(watch.options.bootstrap, watch.options.security)
    now = f"a new connection fails: {why}" if why is not None else "a new connection succeeds now"
    return f"no broker of {watch.settings.bootstrap_server} has answered for {SILENCE_S:.0f} s; {now}"


_TIMEOUT_S, _BUDGET_S = 2.0, 5.0


def why_not_reached(bootstrap: Iterable[Endpoint], security: Security) -> str | None:
    """Connects, logs in and asks for the metadata; returns the error of each broker as text, None if one answers.

    A login may need another server, for example a token endpoint: then the text names that server.
    """
    with contextlib.closing(Cluster(bootstrap, security, timeout_s=_TIMEOUT_S)) as cluster:
        try:
            with cluster.budget(_BUDGET_S):
                cluster.refresh()
        except BrokerError as exc:
            return str(exc)
    return None


def why_it_ended(query: StreamingQuery, repeats: Repeats, watch: Watch) -> str:
    """The reason why the query ended.

    Raises:
        CheckpointError, SparkError: the error is permanent.
    """
    error, ours = query.exception(), watch.batch_errors.last
    if error is None:
        why = Failure("it ended without an error")
    else:
        why = failure_of(text_of(error)) if ours is None else failure_of_ours(ours)
    failure = repeats.add(why)
    where = f"more details may be in Spark's output: {watch.spark_log}"
    if failure.advice:
        raise failure.error(where)
    return failure.cause if error is not None else f"{failure.cause}; {where}"


def _ignoring_errors(action: Any) -> None:  # noqa: ANN401 - a callable of py4j
    """Runs an action and ignores its errors: they must not end the watch, and are of no use."""
    with contextlib.suppress(Exception):
        action()
