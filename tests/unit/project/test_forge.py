"""What a forge reads: the workflows run what the project promises, and the templates name commands that exist."""

from __future__ import annotations

import importlib
import re
import sys
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
WORKFLOWS = ["ci.yaml", "release.yaml", "nightly.yaml"]
MINOR = "Programming Language :: Python :: 3."


@pytest.fixture(scope="module")
def notes() -> ModuleType:
    return script("release_notes")


@pytest.fixture(scope="module")
def sbom() -> ModuleType:
    return script("sbom")


def script(name: str) -> ModuleType:
    """A module of scripts."""
    sys.path.append(str(ROOT / "scripts"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "scripts"))


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


def test_a_release_has_everything_and_is_published_after_every_test() -> None:
    made, tested = commands(job("release.yaml", "build")), commands(job("release.yaml", "test"))
    assert [line.partition(" ")[0] for line in made] == ["make", "make", "docker"]
    assert made[0] == 'make wheels TAG="$GITHUB_REF_NAME"'
    assert tested == ["bash .ci/run"]
    makefile = (ROOT / "Makefile").read_text()
    recipe = dict(re.findall(r"^(\w+):.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE))
    for part in ("dists.py dist", "sbom.py > dist/", "release_notes.py $(if $(TAG),--tag $(TAG)) > dist/notes.md"):
        assert part in recipe["wheels"]
    assert "docker build --file deploy/Dockerfile --tag $(IMAGE):$(VERSION) ." in recipe["image"]
    publish = job("release.yaml", "publish")
    files = "dist/*.whl dist/*.tar.gz dist/*.cdx.json dist/SHA256SUMS --notes-file dist/notes.md"
    assert files in commands(publish)[-1]
    assert publish["needs"] == ["test", "build"]


def test_only_the_job_that_runs_nothing_of_the_repository_may_write() -> None:
    for name in WORKFLOWS:
        workflow = yaml.safe_load((FORGE / "workflows" / name).read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for title, of in workflow["jobs"].items():
            used = [step["uses"] for step in of["steps"] if "uses" in step]
            has_sources = any(one.startswith("actions/checkout@") for one in used)
            assert ("permissions" in of) is (title == "publish")
            assert has_sources is (title != "publish"), "what may write executes no code of the repository"
    attested = [step for step in job("release.yaml", "publish")["steps"] if "attest-build" in step.get("uses", "")]
    assert {key for step in attested for key in step["with"]} >= {"subject-checksums", "subject-digest"}


def test_every_action_is_a_commit_and_its_updates_are_asked_for() -> None:
    for name in WORKFLOWS:
        text = (FORGE / "workflows" / name).read_text()
        used = re.findall(r"uses: (.*)$", text, flags=re.MULTILINE)
        assert used
        assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", one)] == []
    asked = yaml.safe_load((FORGE / "dependabot.yml").read_text())["updates"]
    assert {one["package-ecosystem"] for one in asked} == {"github-actions", "pip", "docker"}
    places = [place for one in asked for place in one.get("directories", [one.get("directory")])]
    assert [place for place in places if not (ROOT / place.strip("/")).is_dir()] == []


def test_the_bill_of_materials_has_every_locked_package_and_the_vendored_ones(sbom: ModuleType) -> None:
    found = sbom.bill(ROOT, 0)
    assert found == sbom.bill(ROOT, 0)
    assert (found["bomFormat"], found["metadata"]["component"]["version"]) == ("CycloneDX", PROJECT["version"])
    locked = (ROOT / "deploy" / "image" / "requirements.txt").read_text()
    names = re.findall(r"^([\w.-]+)(?:\[\w,]+\])?==", locked, flags=re.MULTILINE)
    by_name = {one["name"]: one for one in found["components"]}
    assert set(by_name) == {*names, "lit-html"}
    assert by_name["lit-html"]["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
    assert PROJECT["license"] == "Apache-2.0 AND BSD-3-Clause"


@pytest.mark.parametrize("workflow", WORKFLOWS)
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
