"""`txnwatch demo`: finds and resolves a real hang, on a real Kafka and a real Redis with healthy applications.

The steps are in play.py, the servers in stage.py, the screen in screen.py. The exit code is 0 only if
every step was observed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from txnwatch.cli.output import duration
from txnwatch.state.model.errors import TxnwatchError
from txnwatch_demo.play import STEPS, Demo
from txnwatch_demo.screen import DemoView


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="show how a real hang is found, named and resolved; needs no running server",
        description="Starts a real Kafka and Redis on this machine and shows a hang from beginning to end.",
    )
    parser.add_argument("--keep", action="store_true", help="leave everything running, and print commands to try")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="save the screen with the open incident as a picture")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Runs the demo; exit code 0 only if every step was observed."""
    with (
        tempfile.TemporaryDirectory(prefix="txnwatch-demo-") as directory,
        _terminable(),
        contextlib.ExitStack() as stack,
    ):
        view = DemoView()
        view.plan(STEPS)
        demo = Demo(Path(directory), view, stack)
        view.console.print(f"The page, from the third step on: {demo.page}", highlight=False)
        try:
            with view:
                demo.play(parsed.svg)
        except TxnwatchError as exc:
            view.console.print(f"[bold red]the demo failed:[/] {exc}", highlight=False)
            return 1
        view.console.print(
            f"\n[bold green]All {len(STEPS)} steps observed.[/] "
            f"From the late write to the event on the topic: [bold]{duration(demo.latency_ms)}[/].",
            highlight=False,
        )
        if parsed.keep:
            demo.stay()
    return 0


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Makes SIGTERM end the demo as Ctrl-C does, with everything that it started."""

    def on_signal(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
