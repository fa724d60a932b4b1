"""`txnwatch demo`: finds and resolves a real hang, on a real Kafka and a real Redis with healthy applications.

The servers are in stage.py, the fault in late_write.py, the screen in screen.py. The exit code is 0 only if every step
was observed.

Law: the watch runs as a user runs it, as `txnwatch run` in a separate process. Every step is observed from outside:
offsets from the brokers, a consumer's position, the events topic, Redis. A step that is not observed in time raises;
the demo shows nothing that was not observed.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import redis

from txnwatch.cli.output import duration
from txnwatch.sinks.delivery.redis_sink import prefix_of
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.incident import Action, ActionResult, IncidentEvent, Refusal
from txnwatch.state.model.values import NO_TIME, DurationMs
from txnwatch_demo.embedded.jars import KAFKA_VERSION
from txnwatch_demo.screen import DemoView
from txnwatch_demo.stage import FREEZE_S, VICTIM, ZOMBIE, DemoServers


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "demo",
        help="show how a real hang is found, named and resolved; needs no running server",
        description="Starts a real Kafka and Redis on this machine and shows a hang from beginning to end.",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running, with a second hang, and print commands to try"
    )
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
        servers = DemoServers(Path(directory), view, stack)
        demo = Demo(servers)
        view.console.print(f"The page, from the third step on: {servers.page}", highlight=False)
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
            return _stay(servers, view)
    return 0


def _stay(servers: DemoServers, view: DemoView) -> int:
    try:
        servers.stay()
    except TxnwatchError as exc:
        view.console.print(f"[bold red]the demo failed:[/] {exc}", highlight=False)
        return 1
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


# The steps.

STEPS = (
    "Kafka and Redis run",
    "five applications commit, abort, copy exactly once",
    "txnwatch watches, and reports nothing",
    "a write of an aborted transaction arrives late",
    "the read_committed consumer stops",
    "the incident is on the topic",
    "the same incident is in Redis",
    "txnwatch refuses to abort it: checkout-7 may still use its epoch",
    "checkout-7 restarts, and txnwatch aborts its old transaction",
    "the consumer continues",
    "the incident is resolved, on the topic and in Redis",
    "nothing else was reported",
)


@dataclass
class Demo:
    """Runs the steps of the demo on its servers."""

    servers: DemoServers
    latency_ms: DurationMs = NO_TIME

    def play(self, svg: Path | None) -> None:
        """Runs every step; saves the screen to `svg` while the incident is open.

        Raises:
            TxnwatchError: a step was not observed in time.
        """
        with self.servers.view.step(0) as step:
            self.servers.start_servers()
            step.detail = f"Kafka {KAFKA_VERSION} at {self.servers.bootstrap}, Redis at {self.servers.redis.url}"
        with self.servers.view.step(1) as step:
            self.servers.start_applications()
            step.detail = ", ".join(application.name for application in self.servers.applications)
        with self.servers.view.step(2) as step:
            step.detail = self.servers.start_watching()
        with self.servers.view.step(3) as step:
            zombie, hung_at = self.servers.write_late()
            step.detail = f"{ZOMBIE} wrote to {VICTIM} after its abort marker"
        with self.servers.view.step(4) as step:
            step.detail = self.see_it_stand_still()
        with self.servers.view.step(5) as step:
            incident = self.see_on_topic("opened", hung_at)
            step.detail = f"{duration(self.latency_ms)} after the late write"
        with self.servers.view.step(6) as step:
            step.detail = self.see_in_redis(incident)
        self.servers.view.show()
        if svg is not None:
            self.servers.view.save_svg(svg)
        self.servers.leave_time_to_read()
        with self.servers.view.step(7) as step:
            self.see_decided(lambda action: action.refusal is Refusal.EPOCH_MAY_BE_REUSED, "the refusal")
            step.detail = "refused: epoch_may_be_reused"
        with self.servers.view.step(8) as step:
            zombie.init()
            decided = self.see_decided(lambda action: action.result is ActionResult.VERIFIED, "the verified abort")
            step.detail = f"marker written and read again, last stable offset {decided.last_stable_offset_after}"
        with self.servers.view.step(9) as step:
            step.detail = self.see_it_move(incident)
        with self.servers.view.step(10) as step:
            resolved = self.see_on_topic("resolved", hung_at)
            self.see_in_redis(resolved)
            step.detail = f"{resolved.resolution.how if resolved.resolution else ''} after {duration(resolved.age_ms)}"
        self.servers.view.show()
        with self.servers.view.step(11):
            self.servers.leave_time_to_read()
            self.see_nothing_else(incident)

    def see_it_stand_still(self) -> str:
        """Waits until the consumer has stayed at the last stable offset for 3 s while more records arrive."""
        row = self.servers.view.rows[VICTIM.partition]

        def stands() -> bool:
            return row.stands_since is not None and time.monotonic() - row.stands_since >= FREEZE_S and row.hidden > 1

        self.servers.wait(stands, 30.0, "the consumer to stop at the last stable offset")
        return f"at {row.position}, {row.hidden} records after it are hidden"

    def see_on_topic(self, status: str, hung_at: float) -> IncidentEvent:
        """Waits for the incident's event with this status on the events topic."""

        def found() -> tuple[float, IncidentEvent] | None:
            return next(
                ((at, event) for at, event in self.servers.events if _is_ours(event) and event.status == status), None
            )

        self.servers.wait(lambda: found() is not None, 30.0, f"the {status} event of {ZOMBIE} on {VICTIM}")
        at, event = found() or (0.0, self.servers.events[-1][1])
        if status == "opened":
            self.latency_ms = DurationMs(int((at - hung_at) * 1000))
        self.servers.view.incident = event
        return event

    def see_in_redis(self, event: IncidentEvent) -> str:
        """Waits for the same event in Redis: in its hash and, while it is open, in the sorted set."""
        client: Any = redis.Redis.from_url(self.servers.redis.url, decode_responses=True)
        prefix = prefix_of(event.cluster_id)
        key = f"{prefix}incident:{event.incident_id}"

        def is_there() -> bool:
            held = client.hgetall(key)
            is_listed = client.zscore(f"{prefix}incidents", event.incident_id) is not None
            is_stored = int(held.get("sequence", 0)) >= event.sequence and held["transactional_id"] == ZOMBIE
            return is_stored and is_listed == event.is_open and (event.is_open or held["status"] == event.status)

        self.servers.wait(is_there, 15.0, f"{event.status} in Redis")
        return key

    def see_decided(self, is_meant: Callable[[Action], bool], what: str) -> Action:
        """Waits for the event with this decision of the automatic abort."""

        def found() -> list[Action]:
            actions = (event.action for _, event in self.servers.events if _is_ours(event) and event.action is not None)
            return [action for action in actions if is_meant(action)]

        self.servers.wait(lambda: bool(found()), 40.0, f"the event with {what}")
        return found()[0]

    def see_it_move(self, incident: IncidentEvent) -> str:
        """Waits until the consumer moves beyond the offset where it was stopped."""
        row = self.servers.view.rows[VICTIM.partition]
        stood = incident.last_stable_offset or 0
        self.servers.wait(lambda: row.position > stood and row.stands_since is None, 30.0, "the consumer to continue")
        return f"from {stood} to {row.position}"

    def see_nothing_else(self, incident: IncidentEvent) -> None:
        """Checks that there was one incident, opened once and resolved once, and that every application is healthy."""
        seen = [(event.incident_id, event.status) for _, event in self.servers.events]
        expected = [(incident.incident_id, "opened"), (incident.incident_id, "resolved")]
        if [entry for entry in seen if entry[1] != "updated"] != expected:
            raise TxnwatchError(f"expected one incident, opened and resolved, found {seen}")
        for application in self.servers.applications:
            if application.error is not None:
                raise TxnwatchError(f"application {application.name} failed: {application.error}")


def _is_ours(event: IncidentEvent) -> bool:
    return event.transactional_id == ZOMBIE and (event.topic, event.partition) == VICTIM
