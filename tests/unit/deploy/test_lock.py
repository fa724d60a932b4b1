"""The lock files of the image: every requirement of pyproject.toml, in a version that it allows, with hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
IMAGE = ROOT / "deploy" / "image"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = [line for extra in ("aws", "jks", "registry") for line in PROJECT["project"]["optional-dependencies"][extra]]
RUN = [Requirement(line) for line in (*PROJECT["project"]["dependencies"], *EXTRAS)]
BUILD = [Requirement(line) for line in PROJECT["build-system"]["requires"]]
PYTHONS = ("3.11", "3.12")
LOCKS = [pytest.param("requirements.txt", RUN, id="run"), pytest.param("build-requirements.txt", BUILD, id="build")]


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Every requirement of a lock file with its hashes."""
    text = re.sub(r"^#.*\n", "", (IMAGE / name).read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        requirement, *hashes = line.split(" --hash=")
        found.append((Requirement(requirement.strip()), [one.strip() for one in hashes]))
    return found


def on_linux(requirement: Requirement, python: str) -> bool:
    """Whether a requirement counts in an image with this Python."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.7",
        "sys_platform": "linux",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    return requirement.marker is None or requirement.marker.evaluate(environment)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("name", "required"), LOCKS)
def test_the_lock_satisfies_the_project(name: str, required: list[Requirement], python: str) -> None:
    locked = {canonicalize_name(entry.name): entry.specifier for entry, _ in entries(name) if on_linux(entry, python)}
    assert len(required) > 0
    for requirement in required:
        (pin,) = locked[canonicalize_name(requirement.name)]
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), f"{requirement}: {name} is old: run `make lock`"


@pytest.mark.parametrize("name", ["requirements.txt", "build-requirements.txt"])
def test_every_entry_is_one_version_with_hashes(name: str) -> None:
    assert entries(name)
    for entry, hashes in entries(name):
        assert [pin.operator for pin in entry.specifier] == ["=="], entry
        assert hashes, entry
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), entry


@pytest.mark.parametrize("python", PYTHONS)
def test_a_python_gets_one_version_of_each_package(python: str) -> None:
    names = [canonicalize_name(entry.name) for entry, _ in entries("requirements.txt") if on_linux(entry, python)]
    assert len(names) == len(set(names))


def test_the_image_has_what_the_registry_needs_and_installs_only_what_is_locked() -> None:
    assert "authlib" in {entry.name for entry, _ in entries("requirements.txt")}
    dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
    installs = re.findall(r"pip install (.*)", dockerfile)
    assert len(installs) == 3
    assert [("--require-hashes" in line) or ("--no-deps" in line) for line in installs] == [True] * 3
    assert all("--no-build-isolation" in line for line in installs[1:])
