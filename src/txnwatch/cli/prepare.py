"""`txnwatch prepare`: makes once what lets `txnwatch run` start faster. It asks no broker.

That is an archive of the classes of the JVM (streaming/job/jvm.py). `run` starts this command in the background where
it may (`NextStart` in spark_start.py): this needs a second JVM for half a minute, with a processor and memory to spare.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import Any

from txnwatch.cli.output import CLEAN, delivering
from txnwatch.streaming.job.jvm import check_packages, java


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "prepare",
        help="make once what lets `run` start faster",
        description="Writes an archive of the JVM's classes into this Python environment (156 MB). Each later start of "
        "`txnwatch run` with this environment then takes about a quarter less time. `run` makes it by itself, for the "
        "next start, if it may write there and has a second processor and 2 GB of memory to spare. Otherwise run this "
        "once after an installation or an upgrade, as the user who has installed txnwatch.",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Writes the archive; exit code 0 if it was written."""
    del parsed
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the JVM is killed, too
    check_packages("prepare")
    java()
    from txnwatch.spark_start import prepared  # noqa: PLC0415 - Spark is an extra, see docs/install.md
    from txnwatch.streaming.job.scratch import SCRATCH, OwnDirectory  # noqa: PLC0415

    begin, scratch = time.monotonic(), OwnDirectory(SCRATCH)
    archive = prepared(scratch.path / "spark.log", scratch.path)  # an error names the log, so it stays
    scratch.remove()
    with delivering():
        print(f"{archive}: {archive.stat().st_size >> 20} MB, made in {time.monotonic() - begin:.0f} s")
    return CLEAN
