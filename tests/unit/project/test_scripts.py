"""The scripts of contributors: what they import exists, although no other test runs most of them."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = {"txnwatch", "txnwatch_demo", "support", *(path.stem for path in SCRIPTS)}


def requirements() -> set[str]:
    """The names of all distributions that the project and its extras require."""
    listed = [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    return {re.split(r"[\[<>=; ]", line)[0].lower().replace("_", "-") for line in listed}


def imported(path: Path) -> Iterator[tuple[str, str | None]]:
    """Each imported module, and each name that is imported from one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def problem(module: str, name: str | None) -> str | None:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    if top not in OURS:
        distributions = {found.lower().replace("_", "-") for found in packages_distributions().get(top, [top])}
        is_required = distributions & requirements() or top == "pydantic_core"  # which pydantic brings
        return None if is_required else f"{module}: no dependency of the project or of an extra"
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return f"{module}: no such module"
    is_module = spec.submodule_search_locations is not None and importlib.util.find_spec(f"{module}.{name}") is not None
    is_there = name is None or is_module or name in defined(Path(spec.origin))
    return None if is_there else f"{module} has no {name}"


def defined(path: Path) -> set[str]:
    """The names at the top level of a module."""
    found = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_import_of_a_script_resolves(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    assert [found for module, name in imported(script) if (found := problem(module, name)) is not None] == []


def test_an_import_that_does_not_resolve_is_found() -> None:
    assert problem("txnwatch.config", "no_such_name") == "txnwatch.config has no no_such_name"
    assert problem("txnwatch.no_such_module", None) == "txnwatch.no_such_module: no such module"
    assert problem("no_such_package", None) == "no_such_package: no dependency of the project or of an extra"
    assert problem("txnwatch.config", "RunSettings") is None
    assert problem("txnwatch_demo.embedded", "jars") is None
