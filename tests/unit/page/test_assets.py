"""The files of the browser: those of others are exactly those of the lock, and nothing is loaded from elsewhere."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from txnwatch.page.site_files import Assets

STATIC = Path(__file__).parents[3] / "src" / "txnwatch" / "page" / "static"
LOCKED = {
    file["to"]: file["sha256"]
    for package in tomllib.loads((STATIC / "vendor.lock.toml").read_text())["package"]
    for file in package["file"]
}
OURS = sorted(path.name for path in STATIC.iterdir() if path.suffix in {".js", ".css", ".html", ".svg"})
FIRST_LOAD_BYTES = 45 * 1024
FIRST_PICTURE_BYTES = 26 * 1024  # without the picture itself
CONNECTIONS = 6  # of a browser to one host


@pytest.mark.parametrize("name", LOCKED)
def test_a_file_of_another_project_is_that_of_the_lock(name: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == LOCKED[name]


def test_each_script_is_ours_or_in_the_lock() -> None:
    ours = {"details.js", "draw.js", "live.js", "page.js", "past.js", "views.js", "words.js"}
    assert {path.name for path in STATIC.glob("*.js")} == ours | {name for name in LOCKED if name.endswith(".js")}
    assert list(STATIC.glob("*.map")) == []


@pytest.mark.parametrize("name", OURS)
def test_nothing_is_made_into_code_or_loaded_from_another_host(name: str) -> None:
    text = (STATIC / name).read_text()
    assert (
        re.search(r"\beval\(|new Function|innerHTML\s*=[^=]|unsafeHTML|document\.write", text) is None or name in LOCKED
    )
    hosts = re.findall(r"(?:https?:)?//[a-z][a-z0-9.-]+\.[a-z]+", text)
    allowed = {"http://www.w3.org", "https://github.com"}  # the name of SVG, and a link to the runbook
    assert {host for host in hosts if not host.startswith("//#")} <= allowed or name in LOCKED
    assert "style=" not in text, "the policy refuses it"


def test_the_first_load_is_small() -> None:
    assets = Assets()
    shell = b"".join(one.packed for one in assets.shell)
    sizes = {name: len(assets[name].compressed) for name in OURS if not name.endswith(".html")}
    assert sum(sizes.values()) + len(shell) < FIRST_LOAD_BYTES, sizes
    before = {name: size for name, size in sizes.items() if f"/{name}".encode() in assets.shell[0].plain}
    assert sum(before.values()) + len(shell) < FIRST_PICTURE_BYTES, before
    assert len([name for name in before if name != "icon.svg"]) <= CONNECTIONS, before


@pytest.mark.parametrize("name", OURS)
def test_the_first_picture_needs_only_the_files_that_the_shell_names(name: str) -> None:
    shell = Assets().shell[0].plain.decode()
    needed = re.findall(r'^import .* from "./(.*)";$', (STATIC / name).read_text(), re.MULTILINE)
    assert f"/{name}" not in shell or [one for one in needed if f"/{one}" not in shell] == []


# --- the colours: contrast against every ground, and difference for people who see fewer colours

LIGHT, DARK = re.findall(r":root \{\s*color-scheme: \w+;(.*?)\}", (STATIC / "page.css").read_text(), re.DOTALL)
STATES = ("critical", "warning", "info", "clear", "unknown", "healthy")
# Machado, Oliveira and Fernandes 2009, at full strength, on linear light.
BLINDNESS = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def colours(block: str) -> dict[str, tuple[float, ...]]:
    """The linear light of each colour."""
    found = re.findall(r"--([a-z-]+): #([0-9a-f]{6});", block)
    return {name: tuple(linear(int(text[at : at + 2], 16) / 255) for at in (0, 2, 4)) for name, text in found}


def linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def luminance(colour: tuple[float, ...]) -> float:
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), colour, strict=True))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(colour: tuple[float, ...]) -> tuple[float, float, float]:
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    x, y, z = (
        max(0.0, sum(w * part for w, part in zip(row, colour, strict=True))) / white
        for row, white in zip(rows, (0.9505, 1.0, 1.089), strict=True)
    )
    fx, fy, fz = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def seen_by(colour: tuple[float, ...], blindness: str) -> tuple[float, ...]:
    rows = BLINDNESS[blindness]
    return tuple(min(1.0, max(0.0, sum(w * part for w, part in zip(row, colour, strict=True)))) for row in rows)


@pytest.mark.parametrize("block", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(block: str) -> None:
    found = colours(block)
    for ground in ("surface", "page", "sunk"):
        for name in ("text", "muted", "link", *STATES):
            least = 3.0 if name == "healthy" else 4.5  # the one is a drawing, the others are text
            assert contrast(found[name], found[ground]) >= least, (name, ground)
    for tone in ("critical", "warning", "info", "clear", "unknown"):
        for name in ("text", "muted", tone):
            assert contrast(found[name], found[f"{tone}-bg"]) >= 4.5, (name, tone)


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("block", [LIGHT, DARK], ids=["light", "dark"])
def test_the_states_differ_for_everybody(block: str, blindness: str) -> None:
    labs = {name: lab(seen_by(colours(block)[name], blindness)) for name in STATES}
    for one in STATES:
        for other in STATES:
            if one < other:
                difference = sum((a - b) ** 2 for a, b in zip(labs[one], labs[other], strict=True)) ** 0.5
                assert difference >= 12, (one, other)
