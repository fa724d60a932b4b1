"""The screen of the demo as a picture."""

from __future__ import annotations

from pathlib import Path

from txnwatch_demo.view import DemoStep, DemoView


def test_the_picture_loads_nothing_from_another_host(tmp_path: Path) -> None:
    DemoView(steps=[DemoStep("one step")]).save_svg(tmp_path / "screen.svg")
    picture = (tmp_path / "screen.svg").read_text()
    assert "one step".replace(" ", "&#160;") in picture
    assert "url(" not in picture.replace("url(#", "")
