"""`txnwatch completion`: the script with which a shell completes commands, flags and their values.

The library shtab writes it from the argument parser. A shell reads the script once, so that a completion starts no
Python; therefore no name of a cluster is completed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import shtab

from txnwatch.cli.main import needed_for, parser
from txnwatch.cli.output import CLEAN, delivering

SHELLS = ("bash", "zsh", "fish")
_COMPLETED_AS = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}  # by the placeholder of a value


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    added: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="print the script with which a shell completes commands and flags",
        description="Prints the script with which a shell completes the commands, their flags, and the values of flags "
        "that are one of a few, a file or a directory.",
    )
    added.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    added.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Prints the script."""
    top = parser(needed_for(()))
    for action in _actions(top):
        _tell_values(action)
    with delivering():
        print(shtab.complete(top, parsed.shell))
    return CLEAN


def _actions(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The flags of a parser and of its commands; argparse has no public list of them."""
    for action in of._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


def _tell_values(action: argparse.Action) -> None:
    """Adds what shtab needs to complete the value. A setting's values are in its placeholder, not in `choices`."""
    placeholder = str(action.metavar or "")
    if placeholder in _COMPLETED_AS:
        action.complete = _COMPLETED_AS[placeholder]  # type: ignore[attr-defined]
    elif placeholder.startswith("{"):
        action.choices = placeholder.strip("{}").split(",")
