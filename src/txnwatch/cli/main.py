"""The argument parser, and the only place where an error becomes one line and an exit code.

Law: an answer that cannot be written is a failure, whatever was found, with one line on standard error. Only a closed
pipe (`| head`) gets no line.

Exit codes: 0 clean, 1 failure or an incomplete answer, 2 usage, 3 found something (`--fail-on-found`), 4 no watcher
evaluates barriers, so that an empty answer proves nothing (`status`), 5 refused, and nothing was written (`abort`,
`fence`).
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

from txnwatch import __version__
from txnwatch.cli.output import FAILURE, USAGE, delivering, log_to_stderr, print_error
from txnwatch.state.model.errors import ConfigError, OutputError, TxnwatchError
from txnwatch.state.text import redacted

# The commands: those of txnwatch, and those of other distributions (entry points of the group `txnwatch.commands`).
#
# Law: the module of a command is imported only when that command is used, so that a query does not wait for the imports
# of `run`. The module of `find-hanging` is `find_hanging.py`, and so on.
#
# Law: the entry points are read only for a name that is not in `COMMANDS`, and to list all commands. No other
# distribution can replace a command of txnwatch.

COMMANDS = (
    "run",
    "find-hanging",
    "list",
    "describe",
    "describe-producers",
    "explain",
    "fence",
    "abort",
    "decode",
    "doctor",
    "audit",
    "owners",
    "prepare",
    "events",
    "history",
    "status",
    "page",
    "completion",
)
GROUP = "txnwatch.commands"
DISTRIBUTIONS = {"demo": "txnwatch-demo"}  # where a command is that txnwatch does not have itself


def needed_for(given: Sequence[str]) -> Sequence[str]:
    """The commands that the parser needs: the one that the first argument names, else all.

    Raises:
        ConfigError: the distribution of the command is not installed.
    """
    first = given[0] if given else ""
    if first in COMMANDS:
        return (first,)
    added = added_commands()
    if first in added:
        return (first,)
    if first in DISTRIBUTIONS:
        raise ConfigError(
            f"the command {first} is in the package {DISTRIBUTIONS[first]}, which is not installed (docs/install.md)"
        )
    return (*COMMANDS, *added)


def added_commands() -> dict[str, EntryPoint]:
    """The commands of other distributions, by name."""
    return {
        entry_point.name: entry_point for entry_point in entry_points(group=GROUP) if entry_point.name not in COMMANDS
    }


def module_of(command: str) -> Any:  # noqa: ANN401 - a module with `add_parser`
    """The module of a command.

    Raises:
        ConfigError: the module of another distribution cannot be imported, for example because its version differs.
    """
    if command in COMMANDS:
        return import_module(f"txnwatch.cli.{command.replace('-', '_')}")
    try:
        return added_commands()[command].load()
    except ImportError as exc:
        raise ConfigError(
            f"the command {command} cannot be imported (is its package of this version of txnwatch?): {exc}"
        ) from exc


# The program: the parser of its arguments, and the exit code of an error.

_INTERRUPTED = 130
_SEVERAL = frozenset({argparse.ZERO_OR_MORE, argparse.ONE_OR_MORE})


class _Parser(argparse.ArgumentParser):
    _is_mixed = False  # while argparse parses the flags and the names apart

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as in argparse
        """Flags may be between the names of a command that takes several, as users of Kafka's tools write them.

        Behind `--` each argument is a name. Then the names follow each other: argparse of Python 3.11 loses the `--`
        when it parses the names apart.
        """
        is_with_several = any(action.nargs in _SEVERAL for action in self._get_positional_actions())
        if self._is_mixed or not is_with_several or args is None or "--" in args:
            return super().parse_known_args(args, namespace)
        self._is_mixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixed = False

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
