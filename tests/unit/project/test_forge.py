"""What a forge reads: the workflows run what the project promises, and the templates name commands that exist."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from txnwatch.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
FORGE = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TEMPLATES = sorted((FORGE / "ISSUE_TEMPLATE").glob("*.yaml"))
MINOR = "Programming Language :: Python :: 3."


def job(workflow: str, name: str) -> Any:
    return yaml.safe_load((FORGE / "workflows" / workflow).read_text())["jobs"][name]


def commands(of: Any) -> list[str]:
    return [step["run"] for step in of["steps"] if "run" in step]


def test_continuous_integration_runs_with_each_python_that_is_promised() -> None:
    promised = [text.removeprefix(MINOR) for text in PROJECT["classifiers"] if text.startswith(MINOR)]
    tests = job("ci.yaml", "test")
    assert tests["strategy"]["matrix"]["python"] == [f"3.{minor}" for minor in promised]
    assert PROJECT["requires-python"] == f">=3.{promised[0]}"
    assert commands(tests) == ["bash .ci/run"]


def test_every_night_what_takes_long_runs_and_no_test_is_skipped_for_a_missing_tool() -> None:
    nightly = yaml.safe_load((FORGE / "workflows" / "nightly.yaml").read_text())
    assert nightly[True]["schedule"], "`on` is a boolean of YAML"
    run = nightly["jobs"]["long"]
    assert commands(run)[-4:] == ["scripts/alertmanager.sh", "scripts/browser.sh", "make long", "make browser"]
    sources = "".join(path.read_text() for path in (ROOT / "tests" / "support").glob("*.py"))
    of_the_tests = {"TXNWATCH_TEST_NO_SKIP", *re.findall(r'variable="(TXNWATCH_TEST_\w+)"', sources)}
    assert len(of_the_tests) == 3
    assert run["env"] == dict.fromkeys(of_the_tests, "1")


def test_a_release_makes_both_wheels_the_notes_and_the_image_after_every_test() -> None:
    given = commands(job("release.yaml", "release"))
    steps = [
        next(line for line in given if line.startswith(f"{what} ")) for what in ("make wheels", "bash", "make image")
    ]
    assert [given.index(step) for step in steps] == [0, 1, 2]
    makefile = (ROOT / "Makefile").read_text()
    recipe = dict(re.findall(r"^(\w+):.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE))
    assert "pip wheel" in recipe["wheels"]
    assert "--wheel-dir dist . ./src/txnwatch_demo\n" in recipe["wheels"]
    assert "release_notes.py $(if $(TAG),--tag $(TAG)) > dist/notes.md" in recipe["wheels"]
    assert "docker build --file deploy/Dockerfile --tag $(IMAGE):$(VERSION) ." in recipe["image"]
    assert "dist/*.whl dist/SHA256SUMS --notes-file dist/notes.md" in given[-1]


@pytest.mark.parametrize("workflow", ["ci.yaml", "release.yaml", "nightly.yaml"])
def test_a_workflow_names_no_repository_and_no_person(workflow: str) -> None:
    text = (FORGE / "workflows" / workflow).read_text()
    assert "txnwatch/" not in text.replace("src/txnwatch", "")
    assert re.findall(r"https?://\S+", text) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_of_an_issue_is_one_and_names_commands_that_exist(path: Path) -> None:
    template = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= template.keys()
    fields = [part for part in template["body"] if part["type"] != "markdown"]
    assert len({part["id"] for part in fields}) == len(fields)
    assert all(part["attributes"]["label"] for part in fields)
    named = re.findall(r"txnwatch ([a-z][a-z-]*)[ `\n]", path.read_text())
    assert set(named) - {"run"} <= {*COMMANDS, "reported", "should", "covers"}


def test_there_are_templates_for_issues_and_for_changes() -> None:
    assert len(TEMPLATES) == 3
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    named = re.findall(r"`make ([^`]+)`", (FORGE / "PULL_REQUEST_TEMPLATE.md").read_text())
    assert named
    assert {target for line in named for target in line.split()} <= set(targets)


@pytest.fixture(scope="module")
def notes() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_notes", ROOT / "scripts" / "release_notes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHANGELOG = """# Changelog

## Unreleased

Soon.

## 1.2.3 - 2026-11-26

- One [hang], [a page](docs/a.md#b), [another host](https://example.org/).

## 1.2.2

- Older [census].

[census]: docs/glossary.md#census
[hang]: docs/glossary.md#hang
"""
ON_A_FORGE = {"GITHUB_SERVER_URL": "https://forge.example", "GITHUB_REPOSITORY": "me/mine"}


def test_the_notes_are_the_section_of_the_version_with_links_into_the_repository(notes: ModuleType) -> None:
    base = "https://forge.example/me/mine/blob/v1.2.3/docs"
    assert notes.notes_of("1.2.3", CHANGELOG, "v1.2.3", ON_A_FORGE) == (
        f"- One [hang], [a page]({base}/a.md#b), [another host](https://example.org/).\n\n"
        f"[hang]: {base}/glossary.md#hang\n"
    )


def test_without_a_tag_the_notes_are_those_of_the_next_version_with_the_links_of_the_tree(notes: ModuleType) -> None:
    assert notes.notes_of("1.3.0", CHANGELOG, None, ON_A_FORGE) == "Soon.\n"
    assert "](docs/a.md#b)" in notes.notes_of("1.2.3", CHANGELOG, None, {})


@pytest.mark.parametrize(
    ("version", "tag", "problem"),
    [("1.2.3", "v1.2.4", "expected the tag v1.2.3"), ("1.3.0", "v1.3.0", "expected the heading ## 1.3.0, found none")],
)
def test_a_tag_that_does_not_fit_makes_no_release(notes: ModuleType, version: str, tag: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        notes.notes_of(version, CHANGELOG, tag, {})


def test_the_change_log_has_a_section_of_now(notes: ModuleType) -> None:
    assert "### Added" in notes.notes_of(PROJECT["version"], (ROOT / "CHANGELOG.md").read_text(), None, {})
