"""The screen of the demo as a picture."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from txnwatch.state.model.values import Offset
from txnwatch_demo.screen import DemoStep, DemoView, PartitionRow


def test_the_picture_loads_nothing_from_another_host(tmp_path: Path) -> None:
    DemoView(steps=[DemoStep("one step")]).save_svg(tmp_path / "screen.svg")
    picture = (tmp_path / "screen.svg").read_text()
    assert "one step".replace(" ", "&#160;") in picture
    assert "url(" not in picture.replace("url(#", "")


def _shown(*, width: int, is_terminal: bool, name: str = "payments-0") -> str:
    out = io.StringIO()
    view = DemoView(console=Console(file=out, width=width, force_terminal=is_terminal, color_system=None))
    view.rows = [PartitionRow(name, Offset(123_456), Offset(123_400), Offset(123_400), stands_since=0.0)]
    if is_terminal:
        view.console.print(view.table())
    else:
        view.show()
    return out.getvalue()


def test_a_terminal_of_80_columns_shows_whole_names() -> None:
    shown = _shown(width=80, is_terminal=True)
    assert "payments-0" in shown
    assert "123456" in shown
    assert "STOPPED for" in shown
    assert "\u2026" not in shown


def test_nothing_is_cut_where_the_output_is_no_terminal() -> None:
    name = "payments-of-the-european-region-and-a-longer-name-than-one-line-can-hold-0"
    assert name in _shown(width=80, is_terminal=False, name=name)
