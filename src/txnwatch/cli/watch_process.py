"""The process of `txnwatch run`; only run.py, which has the flags, imports it, when Spark is installed.

SIGTERM and Ctrl-C stop it between two micro-batches, so that the next start continues exactly there; a micro-batch that
takes too long is interrupted, and the next start repeats it. SIGHUP reloads the configuration. A query that ends by
itself is restarted with a backoff, unless its error is permanent.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from txnwatch.app import Watch
from txnwatch.cli.log_output import JSON, log_incident, log_step, log_to_stdout
from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.one_shot import flag_values
from txnwatch.cli.supervision import Reload, StepTooLongError, StopRequest, StopRequestedError, exit_now, supervise
from txnwatch.config import RunSettings
from txnwatch.page.own_hosts import OwnHosts
from txnwatch.page.served_page import PageSite
from txnwatch.setting_sources import ENVIRONMENT_PREFIX, load_settings
from txnwatch.state.model.errors import CheckpointError
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.job.checkpoint import locked
from txnwatch.streaming.job.scratch import SCRATCH, OwnDirectory
from txnwatch.web.server import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FASTER = " (faster after `txnwatch prepare`)"
_LEASE_S = 120.0  # includes the pause before an abandoned lease is taken over
# After the request; the rest of the three seconds is for a busy machine.
_CLOSE_S, _KILL_S, _REMOVE_S = 1.6, 1.8, 2.2


def run(parsed: argparse.Namespace) -> int:
    """Runs until it is stopped; exit code 0 after a stop. Then the process has ended: this does not return."""
    load = functools.partial(load_settings, flag_values(parsed, RunSettings), parsed.config)
    stop, reload = StopRequest(), Reload(load)
    with stop.on_signals(), reload.on_signal():
        if _is_json_asked_for(parsed):  # an error in the settings is then an object, too
            log_to_stdout(JSON)
        settings = load()
        log_to_stdout(settings.log_format)
        is_stopping = functools.partial(_may_no_batch_begin, stop, reload)
        watch = Watch(settings, log=LOG, on_event=log_incident, is_stopping=is_stopping)
        with contextlib.suppress(StopRequestedError):
            _run_until_stopped(watch, stop, reload)
        counts = "".join(f", {count} {what}" for what, count in sorted(watch.counts.items()))
        LOG.info(f"stopped after {watch.batches} micro-batches{counts}")
        stop.finish(watch.files.remove_temporary, until_s=_REMOVE_S)
        exit_now(0)


def _is_json_asked_for(parsed: argparse.Namespace) -> bool:
    """Whether the flag or the environment asks for a log as JSON; the configuration file may not be readable."""
    return (parsed.log_format or os.environ.get(f"{ENVIRONMENT_PREFIX}LOG_FORMAT")) == JSON


def _may_no_batch_begin(stop: StopRequest, reload: Reload) -> bool:
    return stop.is_set() or reload.is_due


def _run_until_stopped(watch: Watch, stop: StopRequest, reload: Reload) -> None:
    stop.run(watch.check)
    reload.certificates, reload.timeout_limit = watch.certificates, watch.timeout_limit
    with locked(watch.checkpoint), _scratch(stop) as scratch, contextlib.ExitStack() as serving:
        page = PageSite(watch.page, wall_clock_ms, watch.ends, OwnHosts(watch.settings.http_names))
        reload.server = serving.enter_context(served(watch.settings, watch.metrics, watch.log, page))
        partitions = sum(len(topic.partitions) for topic in watch.topics)
        LOG.info(f"watching cluster {watch.cluster_id}: {len(watch.topics)} topics, {partitions} partitions")
        LOG.info(f"checkpoint {watch.checkpoint}, Spark's output in {watch.spark_log}")
        log_step(f"1 of 3: Spark starts{_FASTER if watch.may_start_faster() else ''}")
        session = stop.run(functools.partial(watch.start_spark, scratch))
        log_step("2 of 3: the published incidents are read, and Spark plans the query")
        try:
            with _leased(watch, session, stop):
                supervise(watch, session, stop, reload)
        finally:
            _close(watch, session, stop, serving)


@contextlib.contextmanager
def _scratch(stop: StopRequest) -> Iterator[Path]:
    """The directory for temporary files of Spark. What a slow disk does not remove in time, the next start removes."""
    directory = stop.run(functools.partial(OwnDirectory, SCRATCH))
    try:
        yield directory.path
    finally:
        stop.finish(directory.remove, until_s=_REMOVE_S)


def _leased(watch: Watch, session: SparkSession, stop: StopRequest) -> contextlib.AbstractContextManager[None]:
    try:
        return stop.run(functools.partial(watch.take_lease, session, lambda: not stop.has_left_steps), limit_s=_LEASE_S)
    except StepTooLongError:
        raise CheckpointError(
            f"--checkpoint {watch.checkpoint}: its file system has not answered for {_LEASE_S:.0f} s: check its "
            f"address; details: {watch.spark_log}"
        ) from None


def _close(watch: Watch, session: SparkSession, stop: StopRequest, serving: contextlib.ExitStack) -> None:
    """Closes Spark, the destinations and the HTTP server at the same time; kills the JVM if it does not end."""
    from txnwatch.streaming.job.failures import end_jvm, kill_jvm  # noqa: PLC0415

    if not stop.finish(functools.partial(end_jvm, session), watch.close, serving.close, until_s=_CLOSE_S):
        stop.finish(functools.partial(kill_jvm, session), until_s=_KILL_S)
