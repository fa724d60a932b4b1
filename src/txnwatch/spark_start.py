"""Starts Spark for a watch: where its output goes, and what its errors mean."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from txnwatch.config import RunSettings
from txnwatch.config_providers import hidden_from_children
from txnwatch.setting_sources import ENVIRONMENT_PREFIX
from txnwatch.spark_output import NewText, output_to
from txnwatch.streaming.job.failures import start_error
from txnwatch.streaming.job.interpreter import check_interpreter
from txnwatch.streaming.job.unreachable_master import error_of_the_master

if TYPE_CHECKING:  # these imports take a second, and only `run` needs them
    from pyspark.sql import SparkSession


def started_session(
    settings: RunSettings, checkpoint: str, master: str, spark_log: Path, scratch: Path
) -> SparkSession:
    """A new Spark session: the output of the JVM and its workers goes to `spark_log`, temporary files to `scratch`.

    Raises:
        SparkError: Spark does not start.
        ConfigError: `spark_log` cannot be written.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from txnwatch.streaming.job.jvm import report_its_end_once  # noqa: PLC0415
    from txnwatch.streaming.job.query import spark_session  # noqa: PLC0415

    report_its_end_once()
    interpreter = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with hidden_from_children(ENVIRONMENT_PREFIX):
        check_interpreter(interpreter)
    with contextlib.ExitStack() as stack:
        try:
            with output_to(spark_log) as output, hidden_from_children(ENVIRONMENT_PREFIX):
                new_text = stack.enter_context(NewText(spark_log))
                return spark_session(
                    checkpoint,
                    master=master,
                    is_checkpoint_shared=settings.checkpoint_is_shared,
                    conf=settings.spark_conf,
                    state_partitions=settings.state_partitions,
                    output=output,
                    scratch=scratch,
                )
        except (Py4JError, PySparkException, ImportError) as exc:
            written, where = new_text.read(), f"details: {spark_log}"
            raise (error_of_the_master(written, where) or start_error(exc, written, where)) from exc
