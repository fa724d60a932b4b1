"""The screen of the demo: updated in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from txnwatch.cli.output import duration
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import FIRST_OFFSET, Offset

_WAITING, _RUNNING, _DONE, _FAILED = "waiting", "running", "done", "failed"
_SIGNS = {
    _WAITING: ("·", "dim"),
    _RUNNING: ("▸", "bold yellow"),
    _DONE: ("✓", "bold green"),
    _FAILED: ("✗", "bold red"),
}
_SVG_WIDTH = 118
_NO_TERMINAL_WIDTH = 1_000  # nothing is cut or wrapped; a table is only as wide as its cells
_FONT_FACES = re.compile(r"\s*@font-face \{[^}]*\}")


@dataclass
class DemoStep:
    """One step of the demo, and its state."""

    title: str
    state: str = _WAITING
    detail: str = ""
    took_s: float = 0.0


@dataclass
class PartitionRow:
    """One partition as its read_committed consumer sees it."""

    name: str
    high_watermark: Offset = FIRST_OFFSET
    last_stable_offset: Offset = FIRST_OFFSET
    position: Offset = FIRST_OFFSET
    stands_since: float | None = None

    @property
    def hidden(self) -> int:
        """The number of offsets between the last stable offset and the high watermark."""
        return max(0, self.high_watermark - self.last_stable_offset)


@dataclass
class DemoView:
    """The screen. A context manager; `step` returns another one, which marks its step done, or failed if it raises."""

    console: Console = field(default_factory=Console)
    steps: list[DemoStep] = field(default_factory=list)
    rows: list[PartitionRow] = field(default_factory=list)
    incident: IncidentEvent | None = None
    started: float = field(default_factory=time.monotonic)
    _live: Live | None = None

    def __post_init__(self) -> None:
        if not self.console.is_terminal:
            self.console.width = _NO_TERMINAL_WIDTH

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(get_renderable=self.render, console=self.console, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def plan(self, titles: Sequence[str]) -> None:
        """Sets the list of steps."""
        self.steps = [DemoStep(title) for title in titles]

    def step(self, position: int) -> StepScope:
        """The context manager of one step."""
        return StepScope(self, self.steps[position])

    def show_line(self, line: str) -> None:
        """Shows a line of progress inside a step."""
        if self._live is None:
            self.console.print(f"  {line}", highlight=False, soft_wrap=True)
        else:
            running = next((step for step in self.steps if step.state == _RUNNING), None)
            if running is not None:
                running.detail = line

    def show(self) -> None:
        """Prints the table and the incident once, if the screen is not updated in place."""
        if self._live is None:
            self.console.print(self.table())
            if self.incident is not None:
                self.console.print(self.panel(self.incident))

    def show_step(self, step: DemoStep) -> None:
        """Prints that a step has begun or ended, if the screen is not updated in place."""
        if self._live is None:
            if step.state == _RUNNING:
                self.console.print(f"{step.title} ...", highlight=False)
            else:
                sign, _ = _SIGNS[step.state]
                what = step.detail or step.title
                self.console.print(f"{sign} {what} ({step.took_s:.1f} s)", highlight=False, soft_wrap=True)

    def render(self) -> RenderableType:
        """The whole screen."""
        parts: list[RenderableType] = [self._steps_text()]
        if self.rows:
            parts.append(self.table())
        if self.incident is not None:
            parts.append(self.panel(self.incident))
        return Group(*parts)

    def _steps_text(self) -> Text:
        text = Text()
        for step in self.steps:
            sign, style = _SIGNS[step.state]
            text.append(f" {sign} ", style)
            text.append(step.title, "dim" if step.state == _WAITING else "")
            if step.detail:
                text.append(f"  {step.detail}", "cyan" if step.state == _DONE else "yellow")
            text.append("\n")
        return text

    def table(self) -> Table:
        """The partitions of the topic as a read_committed consumer sees them."""
        table = Table(title="what a read_committed consumer of `payments` receives", title_style="bold", expand=False)
        table.add_column("partition", overflow="fold")
        for heading in ("high\nwatermark", "last\nstable", "consumer\nat", "hidden"):
            table.add_column(heading, justify="right", overflow="fold")
        table.add_column("consumer", overflow="fold")
        for row in self.rows:
            stands = time.monotonic() - row.stands_since if row.stands_since is not None else None
            state = Text(f"STOPPED for {stands:.0f} s", "bold red") if stands is not None else Text("reads", "green")
            table.add_row(
                row.name,
                str(row.high_watermark),
                str(row.last_stable_offset),
                str(row.position),
                Text(str(row.hidden), "bold red" if stands is not None else ""),
                state,
            )
        return table

    def panel(self, incident: IncidentEvent) -> Panel:
        """The fields of the incident that an operator needs first."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", justify="right")
        grid.add_column()
        for name, value in incident_facts(incident):
            grid.add_row(name, value)
        colour = "red" if incident.is_open else "green"
        title = f"[bold]{incident.status.upper()}: {incident.verdict}[/bold]"
        return Panel(grid, title=title, border_style=colour, expand=False)

    def save_svg(self, path: Path) -> None:
        """Saves the screen as an SVG picture that loads nothing: rich would let it load its font from another host."""
        recorder = Console(record=True, width=_SVG_WIDTH, file=io.StringIO(), force_terminal=True)
        recorder.print(self.render())
        path.write_text(_FONT_FACES.sub("", recorder.export_svg(title="txnwatch demo")))


class StepScope:
    """Marks a step running, then done or failed."""

    def __init__(self, view: DemoView, step: DemoStep) -> None:
        self._view = view
        self._step = step

    def __enter__(self) -> DemoStep:
        self._step.state = _RUNNING
        self._begin = time.monotonic()
        self._view.show_step(self._step)
        return self._step

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._step.took_s = time.monotonic() - self._begin
        self._step.state = _DONE if kind is None else _FAILED
        self._view.show_step(self._step)


def incident_facts(incident: IncidentEvent) -> list[tuple[str, str]]:
    """The fields of an incident that an operator needs first, with their labels."""
    facts = [
        ("reason", str(incident.reason)),
        ("transactional id", str(incident.transactional_id)),
        ("producer", f"id {incident.producer_id}, epoch {incident.producer_epoch}"),
        *([("call", incident.owner.whom_to_call)] if incident.owner is not None else []),
        ("partition", f"{incident.topic}-{incident.partition}, open since offset {incident.txn_start_offset}"),
        ("coordinator state", str(incident.transaction_state)),
        ("records hidden", str(incident.hidden_records)),
        ("detected in", duration(incident.detection_latency_ms)),
    ]
    if incident.resolution is not None:
        facts.append(("resolved", f"{incident.resolution.how} by {incident.resolution.by}"))
    elif incident.suggested_command is not None:
        facts.append(("next", incident.suggested_command))
    return facts
