"""The parser tree, and the single place where errors become one line and an exit code.

Law: a command's module is imported when that command is asked for, so that looking at a cluster does not wait for
what only `run` or `demo` needs. The module of `find-hanging` is `find_hanging.py`, and so on.

Law too: an answer that nobody could be given is a failure, whatever was found, and said in one line where somebody
may read it. Only a reader that has gone away (`| head`) is told nothing.

Exit codes: 0 clean, 1 failure or an answer with parts missing, 2 usage, 3 found something (`--fail-on-found`),
4 nobody looks: no watcher judges, so that finding nothing says nothing (`status`).
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

from txnwatch import __version__
from txnwatch.cli.output import FAILURE, USAGE, delivering
from txnwatch.state.model.errors import ConfigError, OutputError, TxnwatchError
from txnwatch.state.text.escape import printable

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
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may be no UTF-8, a terminal may not know it
    try:
        try:
            parsed = parser(given[:1] if is_known else COMMANDS).parse_args(given)
            code: int = parsed.run(parsed)
        finally:
            with delivering():
                sys.stdout.flush()  # here, where it can still be said that it cannot
    except ConfigError as exc:
        print(f"txnwatch: {printable(str(exc))}", file=sys.stderr)
        return USAGE
    except OutputError as exc:
        _drop_output()
        print(f"txnwatch: {printable(str(exc))}", file=sys.stderr)
        return FAILURE
    except TxnwatchError as exc:
        print(f"txnwatch: {printable(str(exc))}", file=sys.stderr)
        return FAILURE
    except BrokenPipeError:
        _drop_output()
        return FAILURE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _drop_output() -> None:
    """What was not taken would be tried again when the interpreter ends, and end it with an exception."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
