"""`txnwatch run`: its flags, and whether what it needs is installed.

The process is in watch_process.py, which starts Spark. The help and the completion of all commands need only the flags.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from txnwatch.cli.one_shot import add_config_flag, add_flags
from txnwatch.config import RunSettings
from txnwatch.streaming.job.jvm import check_packages


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "run", help="watch a cluster continuously", description="Watches a cluster until it is stopped."
    )
    add_flags(parser, RunSettings)
    add_config_flag(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Runs until it is stopped.

    Raises:
        ConfigError: Spark is not installed.
    """
    check_packages("run")
    code: int = import_module("txnwatch.cli.watch_process").run(parsed)
    return code
