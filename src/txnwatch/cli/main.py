"""The parser tree, and the single place where errors become one line and an exit code.

Exit codes: 0 clean, 1 failure, 2 usage, 3 found something (where a command is asked to fail on that).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from txnwatch import __version__
from txnwatch.cli import abort, demo, events, run
from txnwatch.state.errors import ConfigError, TxnwatchError

CLEAN, FAILURE, USAGE, FOUND = 0, 1, 2, 3
_INTERRUPTED = 130
COMMANDS = (run, demo, events, abort)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="txnwatch",
        description="Finds Kafka transactions that will never end, within seconds, and names their owner.",
    )
    top.add_argument("--version", action="version", version=f"txnwatch {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    parsed = parser().parse_args(arguments)
    try:
        code: int = parsed.run(parsed)
    except ConfigError as exc:
        print(f"txnwatch: {exc}", file=sys.stderr)
        return USAGE
    except TxnwatchError as exc:
        print(f"txnwatch: {exc}", file=sys.stderr)
        return FAILURE
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away: nobody to tell
        return CLEAN
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code
