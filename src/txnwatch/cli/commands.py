"""The commands: those of txnwatch, and those of other distributions (entry points of the group `txnwatch.commands`).

Law: the module of a command is imported only when that command is used, so that a query does not wait for the imports
of `run`. The module of `find-hanging` is `find_hanging.py`, and so on.

Law: the entry points are read only for a name that is not in `COMMANDS`, and to list all commands. No other
distribution can replace a command of txnwatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from txnwatch.state.model.errors import ConfigError

COMMANDS = (
    "run",
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
        raise ConfigError(f"the command {first} is in another package: pip install {DISTRIBUTIONS[first]}")
    return (*COMMANDS, *added)


def added_commands() -> dict[str, EntryPoint]:
    """The commands of other distributions, by name."""
    return {found.name: found for found in entry_points(group=GROUP) if found.name not in COMMANDS}


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
