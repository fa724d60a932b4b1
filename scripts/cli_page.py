"""docs/cli.md: every command and its flags, from the parser."""

from __future__ import annotations

import argparse

from page_links import link_pages
from page_tables import escaped

from txnwatch.cli.commands import COMMANDS, DISTRIBUTIONS
from txnwatch.cli.main import parser


def cli_page(generated: str) -> str:
    """docs/cli.md."""
    top = parser((*COMMANDS, *DISTRIBUTIONS))
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    lines = [
        "# The command line",
        "",
        generated,
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | success |",
        "| 1 | a failure (one line on standard error has the cause and what to do), or an incomplete answer |",
        "| 2 | wrong usage: a flag or a setting is invalid |",
        "| 3 | something was found (only with `--fail-on-found`) |",
        "| 4 | no watcher is active, so an empty answer proves nothing (only `txnwatch status`) |",
        "| 130 | interrupted with Ctrl-C (`run`: 0, see [Stop](stopping.md#stop)) |",
        "",
        "If a command has an answer and several codes apply, the first of 3, 4, 1 and 0 is used. `doctor` is an",
        "exception: something that is missing always gives 1.",
        "",
        "With `--format json` a command prints one JSON object. It has the same members for every command: `command`,",
        "`version`, `cluster_id`, `complete`, `not_checked` (a list of `what` and `why`), `left_out` (a list of",
        "`count`, `what` and `why`) and `rows`. If `complete` is false, `not_checked` names what could not be checked.",
        "`left_out` counts what a flag of `find-hanging` excludes from `rows`; this does not make the answer",
        "incomplete. `status` also has the member `watchers`: the heartbeat of each one, and `undetected`, the",
        "verdicts that its coordinator view does not detect. They do not make the answer incomplete.",
        "`events --format json` is different: it prints one event per line.",
    ]
    for name, command in commands.choices.items():
        lines += ["", f"## txnwatch {name}", "", str(command.description)]
        if name in DISTRIBUTIONS:
            lines += ["", f"This command is in a package of its own: `pip install {DISTRIBUTIONS[name]}`."]
        lines += ["", "| flag | meaning |", "|---|---|"]
        shown = (action for action in command._actions if action.help != argparse.SUPPRESS)  # noqa: SLF001
        lines += [_flag(action) for action in shown if action.dest != "help"]
    return "\n".join([*lines, ""])


def _flag(action: argparse.Action) -> str:
    choices = f"{{{','.join(action.choices)}}}" if action.choices else action.dest.upper()
    value = "" if action.nargs == 0 else f" {action.metavar or choices}"
    meaning = escaped((action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%"))
    name = f"{action.option_strings[-1]}{value}" if action.option_strings else f"{action.metavar}"
    return f"| `{name}` | {link_pages(meaning)} |"
