"""The watch of `txnwatch run`, in the order of its start: checks, the page, Spark, the query; and its end.

watch_process.py imports this module when the JVM of Spark has begun.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from txnwatch.app import Watch
from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.log_output import log_incident, log_step
from txnwatch.cli.reload import Reload
from txnwatch.cli.stop_request import CLOSE_S, KILL_S, StepTooLongError, StopRequest
from txnwatch.cli.supervision import supervise
from txnwatch.config import RunSettings
from txnwatch.named_files import NamedFiles
from txnwatch.page.own_hosts import OwnHosts
from txnwatch.page.served_page import PageSite
from txnwatch.spark_start import SparkStart
from txnwatch.state.model.errors import CheckpointError
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.job.checkpoint import locked
from txnwatch.streaming.job.failures import end_jvm
from txnwatch.web.server import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FASTER = " (faster after `txnwatch prepare`)"
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
        page = PageSite(watch.page, wall_clock_ms, watch.ends, OwnHosts(watch.settings.http_names))
        reload.server = serving.enter_context(served(watch.settings, watch.metrics, watch.log, page))
        partitions = sum(len(topic.partitions) for topic in watch.topics)
        LOG.info(f"watching cluster {watch.cluster_id}: {len(watch.topics)} topics, {partitions} partitions")
        LOG.info(f"checkpoint {watch.checkpoint}, Spark's output in {watch.spark_log}")
        log_step(f"1 of 3: Spark starts{_FASTER if watch.may_start_faster() else ''}")
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
    if not stop.finish(functools.partial(end_jvm, session), watch.close, serving.close, until_s=CLOSE_S):
        stop.finish(begun.kill, until_s=KILL_S)
