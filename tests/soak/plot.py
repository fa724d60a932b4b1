"""The picture of a soak: what txnwatch held over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_WIDTH, _HEIGHT = 7.2, 7.6


def plot(path: Path, samples: list[dict[str, Any]]) -> None:
    """Draws memory, disk, descriptors and unproven partitions into an SVG file."""
    from matplotlib import rc_context  # only the bench environment has it
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    panels = figure.subplots(4, 1, sharex=True)
    minutes = [one["at_s"] / 60 for one in samples]
    for axes, (name, label, scale) in zip(
        panels,
        (("pss", "memory (PSS), MB", 1e6), ("disk", "disk, MB", 1e6), ("descriptors", "open descriptors", 1)),
        strict=False,
    ):
        for part in sorted({part for one in samples for part in one[name]}):
            axes.plot(minutes, [one[name].get(part, 0) / scale for one in samples], label=part, linewidth=1)
        axes.plot(
            minutes, [sum(one[name].values()) / scale for one in samples], label="sum", color="black", linewidth=1
        )
        axes.set(ylabel=label, ylim=(0, None))
        axes.legend(loc="center right", fontsize="small")
    panels[-1].plot(minutes, [one["unproven"] for one in samples], linewidth=1)
    panels[-1].set(ylabel="unproven partitions", xlabel="minutes", ylim=(0, None))
    for axes in panels:
        axes.grid(visible=True, alpha=0.3)
    with rc_context({"svg.hashsalt": "txnwatch"}):
        figure.savefig(path, format="svg", metadata={"Date": None})
