"""The unit tests lie where the code lies: a directory of tests for each package, a test file beside its module."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "tests" / "unit"
# Packages, and where the tests of their modules are; the tests of a sub-package are in a directory of its name.
PACKAGES = {
    ROOT / "state": UNIT / "state",
    ROOT / "streaming": UNIT / "streaming",
    ROOT / "sinks": UNIT / "sinks",
    ROOT / "src" / "txnwatch": UNIT,
    ROOT / "src" / "txnwatch_demo": UNIT / "demo",
}
OF_THE_TOP_PACKAGE = UNIT / "app"
OF_NO_PACKAGE = {UNIT / "deploy", UNIT / "project"}

TEST_FILES = sorted(UNIT.rglob("test_*.py"))
TEST_DIRECTORIES = sorted({path.parent for path in TEST_FILES})


def directories_by_module() -> dict[str, set[Path]]:
    """Where the tests of a module belong, by its name; several packages may have a module of that name."""
    found = defaultdict(set)
    for package, tests in PACKAGES.items():
        for module in package.rglob("*.py"):
            directory = tests / module.parent.relative_to(package)
            found[module.stem].add(OF_THE_TOP_PACKAGE if directory == UNIT else directory)
    return found


DIRECTORIES = directories_by_module()


@pytest.mark.parametrize("directory", TEST_DIRECTORIES, ids=[str(path.relative_to(UNIT)) for path in TEST_DIRECTORIES])
def test_a_directory_of_tests_has_the_name_of_a_package(directory: Path) -> None:
    assert directory in DIRECTORIES["__init__"] | OF_NO_PACKAGE


def test_a_test_file_with_the_name_of_a_module_lies_at_its_package() -> None:
    elsewhere = {
        str(path.relative_to(UNIT)): sorted(str(at.relative_to(UNIT)) for at in DIRECTORIES[module])
        for path in TEST_FILES
        if (module := path.stem.removeprefix("test_")) in DIRECTORIES and path.parent not in DIRECTORIES[module]
    }
    assert elsewhere == {}, "each of these belongs to another directory"
