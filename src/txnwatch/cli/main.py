"""The parser tree, and the single place where errors become one line and an exit code.

Law: a command's module is imported when that command is asked for, so that looking at a cluster does not wait for
what only `run` or `demo` needs. The module of `find-hanging` is `find_hanging.py`, and so on.

Exit codes: 0 clean, 1 failure or an answer with parts missing, 2 usage, 3 found something (`--fail-on-found`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

from txnwatch import __version__
from txnwatch.cli.output import CLEAN, FAILURE, USAGE
from txnwatch.state.errors import ConfigError, TxnwatchError

_INTERRUPTED = 130
COMMANDS = (
    "run",
    "demo",
    "find-hanging",
    "list",
    "describe",
    "describe-producers",
    "explain",
    "abort",
    "decode",
    "doctor",
    "events",
    "status",
)


def parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The command line, with these commands."""
    top = argparse.ArgumentParser(
        prog="txnwatch",
        description="Finds Kafka transactions that will never end, within seconds, and names their owner.",
    )
    top.add_argument("--version", action="version", version=f"txnwatch {__version__}")
    added = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        import_module(f"txnwatch.cli.{command.replace('-', '_')}").add_parser(added)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    is_known = bool(given) and given[0] in COMMANDS
    try:
        parsed = parser(given[:1] if is_known else COMMANDS).parse_args(given)
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
