"""The process of `txnwatch run`; only run.py, which has the flags, imports it, when Spark is installed.

SIGTERM and Ctrl-C stop it between two micro-batches, so that the next start continues exactly there; a micro-batch that
takes too long is interrupted, and the next start repeats it. SIGHUP reloads the configuration. A query that ends by
itself is restarted with a backoff, unless its error is permanent.

Law: this module imports only what the JVM needs to begin. What the watch needs (watching.py) is imported beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from txnwatch.cli.log_output import JSON, log_to_stdout
from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.reload import Reload
from txnwatch.cli.stop_request import KILL_S, REMOVE_S, StopRequest, StopRequestedError, exit_now
from txnwatch.config import RunSettings
from txnwatch.named_files import read_named_files
from txnwatch.setting_sources import ENVIRONMENT_PREFIX, load_settings
from txnwatch.spark_start import SparkStart
from txnwatch.streaming.job.checkpoint import absolute
from txnwatch.streaming.job.scratch import SCRATCH, OwnDirectory
from txnwatch.streaming.job.spark_conf import SessionSettings, chosen_master

if TYPE_CHECKING:
    from txnwatch.app import Watch

_BEGINS_S = 1.0


def run(parsed: argparse.Namespace) -> int:
    """Runs until it is stopped; exit code 0 after a stop. Then the process has ended: this does not return."""
    flags = {name: getattr(parsed, name) for name in RunSettings.model_fields}  # None: it was not given
    load = functools.partial(load_settings, flags, parsed.config)
    stop, reload = StopRequest(), Reload(load)
    with stop.on_signals(), reload.on_signal():
        if _is_json_asked_for(parsed):  # an error in the settings is then an object, too
            log_to_stdout(JSON)
        settings = load()
        log_to_stdout(settings.log_format)
        named = read_named_files(settings, LOG.warning)
        watch: Watch | None = None
        with contextlib.suppress(StopRequestedError), _spark_begins(settings, stop) as begun:
            watching = stop.run(functools.partial(import_module, "txnwatch.cli.watching"))
            watch = watching.new_watch(settings, named, stop, reload)
            watching.run_until_stopped(watch, begun, stop, reload)
        counts = "".join(f", {count} {what}" for what, count in sorted(watch.counts.items())) if watch else ""
        LOG.info(f"stopped after {watch.batches if watch else 0} micro-batches{counts}")
        if watch:
            stop.finish(watch.files.remove_temporary, until_s=REMOVE_S)
        exit_now(0)


def _is_json_asked_for(parsed: argparse.Namespace) -> bool:
    """Whether the flag or the environment asks for a log as JSON; the configuration file may not be readable."""
    return (parsed.log_format or os.environ.get(f"{ENVIRONMENT_PREFIX}LOG_FORMAT")) == JSON


@contextlib.contextmanager
def _spark_begins(settings: RunSettings, stop: StopRequest) -> Iterator[SparkStart]:
    """Begins the JVM, with a directory for its temporary files; at the end of the block neither is left.

    What a slow disk does not remove in time, the next start removes.
    """
    scratch = stop.run(functools.partial(OwnDirectory, SCRATCH))
    try:
        # At a stop this step still ends, so that the JVM is known.
        begun = stop.run(functools.partial(SparkStart, _session_settings(settings, scratch)), grace_s=_BEGINS_S)
        try:
            if stop.is_set():
                raise StopRequestedError
            yield begun
        finally:
            stop.finish(begun.end, until_s=KILL_S)
    finally:
        stop.finish(scratch.remove, until_s=REMOVE_S)


def _session_settings(settings: RunSettings, scratch: OwnDirectory) -> SessionSettings:
    return SessionSettings(
        checkpoint=absolute(settings.checkpoint),
        master=chosen_master(settings.master, os.environ),
        scratch=scratch.path,
        state_partitions=settings.state_partitions,
        is_checkpoint_shared=settings.checkpoint_is_shared,
        conf=settings.spark_conf,
    )
