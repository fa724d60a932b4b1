"""The argument parser, and the only place where an error becomes one line and an exit code.

Law: an answer that cannot be written is a failure, whatever was found, with one line on standard error. Only a closed
pipe (`| head`) gets no line.

Exit codes: 0 clean, 1 failure or an incomplete answer, 2 usage, 3 found something (`--fail-on-found`), 4 no watcher
evaluates barriers, so that an empty answer proves nothing (`status`).
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import NoReturn

from txnwatch import __version__
from txnwatch.cli.commands import COMMANDS, module_of, needed_for
from txnwatch.cli.log_output import log_to_stderr, print_error
from txnwatch.cli.output import FAILURE, USAGE, delivering
from txnwatch.state.model.errors import ConfigError, OutputError, TxnwatchError
from txnwatch.state.text.redaction import redacted

_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A wrong usage: the message may have an argument of the user, so its secrets are hidden."""
        super().error(redacted(message))


def parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The argument parser with these commands."""
    top = _Parser(
        prog="txnwatch",
        description="Finds Kafka transactions that hang, within seconds, and names the owner of each.",
    )
    top.add_argument("--version", action="version", version=f"txnwatch {__version__}")
    added = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        module_of(command).add_parser(added)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may not be UTF-8, and a terminal may not support it
    log_to_stderr()
    try:
        try:
            parsed = parser(needed_for(given)).parse_args(given)
            if hasattr(parsed, "needs_server"):
                import_module("txnwatch.cli.one_shot").take_settings(parsed)
            code: int = parsed.run(parsed)
        finally:
            with delivering():
                sys.stdout.flush()  # here, where a failure can still be reported
    except ConfigError as exc:
        print_error(exc)
        return USAGE
    except OutputError as exc:
        _drop_output()
        print_error(exc)
        return FAILURE
    except TxnwatchError as exc:
        print_error(exc)
        return FAILURE
    except BrokenPipeError:
        _drop_output()
        return FAILURE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _drop_output() -> None:
    """Redirects standard output to /dev/null: at its exit Python flushes again, which would raise."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
