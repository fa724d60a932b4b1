"""What is shipped is what is here, and the core stays pure: laws about the tree that no single module could keep."""

from __future__ import annotations

import ast
import importlib
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from txnwatch.state.model.errors import EXTRAS, install_command

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"
PROJECTS = {"txnwatch": ROOT, "txnwatch-demo": ROOT / "src" / "txnwatch_demo"}
CONFIGS = {
    name: tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8"))
    for name, directory in PROJECTS.items()
}
SETUPTOOLS = {name: config["tool"]["setuptools"] for name, config in CONFIGS.items()}
DIRECTORIES = {
    package: PROJECTS[name] / directory
    for name, settings in SETUPTOOLS.items()
    for package, directory in settings["package-dir"].items()
}
NOT_SHIPPED = {"build", "txnwatch_demo.egg-info"}  # what a build leaves in the directory of the demo
OF_THE_PROJECT = {"pyproject.toml", "README.md", "LICENSE"}  # these describe the distribution of the demo
SOURCES = {
    ".".join([package, *path.relative_to(directory).with_suffix("").parts]).removesuffix(".__init__"): path
    for package, directory in DIRECTORIES.items()
    for path in sorted(directory.rglob("*.py"))
    if not NOT_SHIPPED & {*path.relative_to(directory).parts}
}
PACKAGES = {name for name, path in SOURCES.items() if path.name == "__init__.py"}
LONGEST_FILE = 600
LONGEST_TEST_FILE = 400
LONGEST_FUNCTION = 45
# A call for each record or batch would cost more than the decoding itself.
LONG_LOOPS = {
    "txnwatch.streaming.wire.record_batch.runs": 53,
}

PURE_PACKAGES = ("txnwatch.state.", "txnwatch.streaming.wire.")
PURE_MODULES = (
    "log.partition_fold",
    "log.coordinator_records",
    "log.transaction_fold",
    "source.offsets",
    "source.planner",
)
PURE = sorted(
    {name for name in SOURCES if f"{name}.".startswith(PURE_PACKAGES)}
    | {f"txnwatch.streaming.{name}" for name in PURE_MODULES}
)
RELATIVE = "a relative import, which hides what is imported"
# Whatever would let a clock, the network, chance or the machine it runs on into a judgement.
IMPURE = {RELATIVE, "pyspark", "confluent_kafka", "kafka", "redis", "fastavro"} | {
    "asyncio",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "threading",
    "time",
}


def check_each(names: Iterable[str], faults_of: Callable[[str], Collection[object]]) -> None:
    """Fails if a module has faults; the message has every such module with its faults."""
    found = {name: faults_of(name) for name in names}
    lines = [f"{name}: {', '.join(map(str, faults))}" for name, faults in found.items() if faults]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def nodes_of(name: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(SOURCES[name].read_text(encoding="utf-8")))


def imports(name: str) -> set[str]:
    """Top-level names of everything the module imports, inside functions too."""
    found: set[str] = set()
    for node in nodes_of(name):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(RELATIVE if node.level else (node.module or "").partition(".")[0])
    return found


def imports_of_ours(name: str, nodes: Iterable[ast.AST]) -> set[str]:
    """The modules of ours that these nodes of a module import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & SOURCES.keys() - {name}


def test_a_check_of_each_module_names_every_one_that_fails() -> None:
    faults = {"one": ["a", "b"], "two": [], "three": ["c"]}
    with pytest.raises(pytest.fail.Exception, match=r"^one: a, b\nthree: c$"):
        check_each(faults, faults.__getitem__)


@pytest.mark.parametrize(("name", "root"), [("txnwatch", "txnwatch"), ("txnwatch-demo", "txnwatch_demo")])
def test_every_package_of_the_tree_is_shipped_by_one_distribution(name: str, root: str) -> None:
    assert sorted(SETUPTOOLS[name]["packages"]) == sorted(found for found in PACKAGES if found.split(".")[0] == root)


def test_the_demo_needs_exactly_its_own_version_of_txnwatch() -> None:
    version = CONFIGS["txnwatch"]["project"]["version"]
    assert CONFIGS["txnwatch-demo"]["project"]["version"] == version
    assert f"txnwatch[spark]=={version}" in CONFIGS["txnwatch-demo"]["project"]["dependencies"]


def test_messages_name_the_packages_of_the_extras() -> None:
    extras = CONFIGS["txnwatch"]["project"]["optional-dependencies"]
    assert {name: tuple(extras[name]) for name in EXTRAS} == EXTRAS
    assert install_command("jks") == "pip install 'purejks>=1,<2'"
    page = (ROOT / "docs" / "install.md").read_text()
    assert [name for name in EXTRAS if name != "spark" and install_command(name) not in page] == []


def test_the_demo_has_the_build_requirements_and_the_python_of_txnwatch() -> None:
    first, second = CONFIGS.values()
    assert first["build-system"] == second["build-system"]
    assert first["project"]["requires-python"] == second["project"]["requires-python"]
    assert (PROJECTS["txnwatch-demo"] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_image_ships_no_demo() -> None:
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored.index("src/txnwatch_demo") > ignored.index("!src")


def test_every_directory_with_sources_is_a_package() -> None:
    assert {name for name in SOURCES if name not in PACKAGES and name.rpartition(".")[0] not in PACKAGES} == set()


def test_every_data_file_of_a_package_is_shipped() -> None:
    data = {
        (".".join([package, *path.parent.relative_to(directory).parts]), path.name)
        for package, directory in DIRECTORIES.items()
        for path in directory.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"} and not path.name.startswith(".")
        if not (NOT_SHIPPED | OF_THE_PROJECT) & {*path.relative_to(directory).parts}
    }
    assert any(name.endswith(".avsc") for _, name in data), "the published schema is gone"
    shipped = {
        (package, pattern)
        for settings in SETUPTOOLS.values()
        for package, patterns in settings.get("package-data", {}).items()
        for pattern in patterns
    }
    assert {(p, name) for p, name in data if not any(p == q and fnmatch(name, found) for q, found in shipped)} == set()


def test_the_core_imports_nothing_that_is_not_pure() -> None:
    check_each(PURE, lambda name: sorted(imports(name) & IMPURE))


def test_the_core_imports_nothing_of_ours_that_is_not_core() -> None:
    def not_core(name: str) -> list[str]:
        modules = {node.module or "" for node in nodes_of(name) if isinstance(node, ast.ImportFrom)}
        return sorted(found for found in modules - set(PURE) if "txnwatch" in found)

    check_each(PURE, not_core)


def test_a_module_has_one_identity() -> None:
    for name in PURE:
        importlib.import_module(name)
    ours = [
        name
        for name, module in sys.modules.items()
        if Path(getattr(module, "__file__", None) or "/") in SOURCES.values() and not name.startswith("txnwatch")
    ]
    assert ours == [], "a module was imported without its package"
    assert sys.modules.keys() & {"state", "streaming", "sinks"} == set()


def test_a_file_can_be_read_in_one_go() -> None:
    def too_long(name: str) -> list[str]:
        lines = len(SOURCES[name].read_text(encoding="utf-8").splitlines())
        return [f"{lines} lines"] if lines > LONGEST_FILE else []

    check_each(SOURCES, too_long)


def test_a_test_file_can_be_read_in_one_go() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(TESTS.rglob("*.py"))}
    assert {path.name: length for path, length in lines.items() if length > LONGEST_TEST_FILE} == {}


def test_a_function_can_be_read_in_one_go() -> None:
    def wrong_length(name: str) -> list[str]:
        lines = {
            f"{name}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
            for node in nodes_of(name)
            if isinstance(node, ast.FunctionDef)
        }
        return [
            f"{function} has {length} lines"
            for function, length in lines.items()
            if (length > LONGEST_FUNCTION or function in LONG_LOOPS) and length != LONG_LOOPS.get(function)
        ]

    check_each(SOURCES, wrong_length)


def test_no_two_classes_have_the_same_name() -> None:
    """Nor has a class that several tests share the name of a class of the product."""
    shared = [path for directory in ("support", "simulation") for path in sorted((TESTS / directory).rglob("*.py"))]
    names = Counter(
        node.name
        for path in (*SOURCES.values(), *shared)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_no_two_modules_have_the_same_name() -> None:
    names = Counter(name.rpartition(".")[2] for name in SOURCES.keys() - PACKAGES)
    assert [name for name, times in names.items() if times > 1] == ["__main__"] * (names["__main__"] > 1)


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Neither to run nor for its types, and not inside a function: each can be read after what it imports."""
    TopologicalSorter({name: imports_of_ours(name, nodes_of(name)) for name in SOURCES}).prepare()


SHORTEST_FILE = 40


def test_a_short_file_has_a_reason() -> None:
    """Of its own: what it keeps apart, in its docstring."""
    short = {
        name
        for name in SOURCES.keys() - PACKAGES
        if len(SOURCES[name].read_text(encoding="utf-8").splitlines()) < SHORTEST_FILE
    }
    assert short == {
        "txnwatch.__main__",  # Python's name for `python -m txnwatch`
        "txnwatch.state.abort.abort_policy",  # the settings need it without the rules
        "txnwatch.cli.run",  # the help of all commands needs its flags, without the imports of Spark
        "txnwatch.streaming.client.clock",  # the only clocks
        "txnwatch.streaming.job.bucket_step",  # what a task imports and a process that plans does not
        "txnwatch.streaming.source.worker_memory",  # the operator uses it without the imports of the source
    }


APART = "\nApart: "


def test_a_module_that_one_other_imports_has_a_reason() -> None:
    """Of its own: after the word Apart in its docstring. No other module has this word."""
    importers = Counter(found for name in SOURCES for found in imports_of_ours(name, nodes_of(name)))
    alone = {name for name, number in importers.items() if number == 1} - PACKAGES
    docstrings = {name: ast.get_docstring(ast.parse(SOURCES[name].read_text(encoding="utf-8"))) for name in SOURCES}
    said = {name for name, text in docstrings.items() if APART in (text or "")}
    assert sorted(alone - said) == [], "the reason is missing"
    assert sorted(said - alone) == [], "several modules, or none, import it"
