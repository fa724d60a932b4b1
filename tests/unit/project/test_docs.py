"""Docs that cannot drift: generated pages match the code, and every name in them exists."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
import tomllib
from collections import Counter
from enum import StrEnum
from pathlib import Path
from types import ModuleType

import pytest

from support.ways import WAYS, WITH_KERBEROS
from txnwatch.cli.main import COMMANDS, DISTRIBUTIONS
from txnwatch.cli.watch_process import AT_ONCE, OF_THE_QUERY
from txnwatch.config import RunSettings
from txnwatch.setting_sources import RESERVED_ENVIRONMENT, load_settings
from txnwatch.sinks.delivery.encoding import schema_text
from txnwatch.state.evidence.ending import RULES
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.verdicts import Reason, Severity, Verdict
from txnwatch.state.telling.statements import OUTCOME_WORDS, REASON_MEANS, VERDICT_WORDS

ROOT = Path(__file__).parents[3]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
PAGES = sorted(
    path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if ".venv" not in path.parts
)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    sys.path.append(str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "scripts" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED = [
    "docs/abort.md",
    "docs/audit.md",
    "docs/schemas/audit.schema.json",
    "docs/capacity.md",
    "docs/cli.md",
    "docs/configuration.md",
    "docs/consumers.md",
    "docs/decisions/README.md",
    "docs/events.md",
    "docs/measured.md",
    "docs/metrics.md",
    "docs/owners.md",
    "docs/spark-source.md",
    "docs/verdicts.md",
    "deploy/reference-config.toml",
    "deploy/helm/txnwatch/values.schema.json",
    "deploy/helm/txnwatch/files/rules.yaml",
]


@pytest.mark.parametrize("page", GENERATED)
def test_generated_pages_are_as_generated(generator: ModuleType, page: str) -> None:
    assert (ROOT / page).read_text() == generator.content(page), f"{page} is old: run `make docs`"


def test_every_generated_page_is_compared(generator: ModuleType) -> None:
    names_of = importlib.import_module("tables").names_of
    with_tables = {page for page in generator.pages() if names_of((ROOT / page).read_text())}
    assert set(GENERATED) == with_tables | generator.FILES.keys()


def test_every_table_has_one_place_in_the_pages(generator: ModuleType) -> None:
    names_of = importlib.import_module("tables").names_of
    placed = Counter(name for page in generator.pages() for name in names_of((ROOT / page).read_text()))
    assert placed.keys() <= generator.BLOCKS.keys()
    once = [name for name in generator.BLOCKS if not name.startswith("results")]
    assert {name: placed[name] for name in once} == dict.fromkeys(once, 1)


def section(page: str, heading: str) -> str:
    text = (ROOT / "docs" / page).read_text()
    assert text.count(f"\n{heading}\n") == 1
    return text.partition(f"\n{heading}\n")[2].partition(f"\n{heading.partition(' ')[0]} ")[0]


def test_the_matrix_of_ways_in_has_a_result_for_every_way_and_command() -> None:
    lines = section("measured.md", "## Tested authentication").splitlines()
    table = [line for line in lines if line.startswith("| ")]
    assert {line.split(" | ")[0].removeprefix("| ") for line in table[2:]} == {*WAYS, WITH_KERBEROS}
    assert [line for line in table if "| - |" in line] == [], "run `make long`"


def test_the_ten_figures_have_a_command_of_the_makefile_and_a_date() -> None:
    lines = section("measured.md", "## Ten figures").splitlines()
    table = [line for line in lines if line.startswith("| ")][2:]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert len(table) == 10
    for line in table:
        found = re.search(r"\| `make ([a-z-]+)(?: ARGS=\w+)?` \| \d{4}-\d\d-\d\d \|$", line)
        assert found is not None, line
        assert found[1] in targets


def test_the_configuration_names_each_setting_and_each_other_variable_once() -> None:
    for heading, names in (
        ("## Settings", RunSettings.model_fields),
        ("## Environment variables that are not settings", RESERVED_ENVIRONMENT),
    ):
        rows = re.findall(r"^\| `(\w+)` \|", section("configuration.md", heading), flags=re.MULTILINE)
        assert sorted(rows) == sorted(names)


def test_each_page_links_each_term_of_the_glossary_where_it_uses_it_first(generator: ModuleType) -> None:
    pages = [page for page in generator.pages() if page not in GENERATED]
    assert len(pages) > 40
    assert [page for page in pages if generator.content(page) != (ROOT / page).read_text()] == [], "run `make docs`"


def test_the_glossary_has_at_most_25_terms_and_each_is_used() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    terms = re.findall(r"^## (.*)$", glossary, flags=re.MULTILINE)
    anchors = [term.replace("'", "").replace(" ", "-") for term in terms]
    texts = [(ROOT / page).read_text() for page in PAGES]
    linked = {found for text in texts for found in re.findall(r"glossary\.md#(\S+)$", text, re.MULTILINE)}
    assert terms == sorted(terms)
    assert len(terms) <= 25
    assert set(anchors) == linked


def test_the_reference_config_has_every_key_and_loads_to_the_defaults() -> None:
    text = (ROOT / "deploy" / "reference-config.toml").read_text()
    named = {line.removeprefix("# ").split(" =")[0] for line in text.splitlines() if re.match(r"(# )?\w+ =", line)}
    assert named == RunSettings.model_fields.keys()
    assert load_settings({}, ROOT / "deploy" / "reference-config.toml", {}) == RunSettings(
        bootstrap_server=tomllib.loads(text)["bootstrap_server"]
    )


def missing_files(page: Path) -> list[str]:
    """The links of a page to files that are not there."""
    text = (ROOT / page).read_text()
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    targets += re.findall(r"^\[[^\]]+\]: ([^\s#:]+)(?:#\S*)?$", text, flags=re.MULTILINE)
    return [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()]


def test_links_to_files_lead_somewhere() -> None:
    assert {page: found for page in PAGES if (found := missing_files(page))} == {}


def items_in_a_line(page: Path) -> list[str]:
    """The lines of a page with an item of a list behind other text."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    return re.findall(r"^.*[.:] - [A-Z`].*$", text, flags=re.MULTILINE)


def test_each_item_of_a_list_begins_on_a_line_of_its_own() -> None:
    assert {page: found for page in PAGES if (found := items_in_a_line(page))} == {}


def test_the_architecture_names_every_package_and_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    packages = [
        path.parent.relative_to(ROOT).as_posix()
        for folder in ("state", "streaming", "sinks", "src/txnwatch", "src/txnwatch_demo")
        for path in (ROOT / folder).rglob("__init__.py")
        if "build" not in path.relative_to(ROOT).parts  # what a build of the demo leaves
    ]
    assert [package for package in packages if f"`{package}`" not in text] == []
    rows = re.findall(r"^\| `([\w/]+)` \|.*\| ([^|]*) \|$", text, flags=re.MULTILINE)
    in_map = [f"{package}/{name}" for package, names in rows for name in re.findall(r"`([\w.]+)`", names)]
    in_text = re.findall(r"(?<![\w/])(?:state|streaming|sinks|src)/[\w/]+\.\w+", text)
    assert len(rows) == len(packages) - len(("state", "streaming", "sinks"))
    assert [name for name in (*in_map, *in_text) if not (ROOT / name).is_file()] == []


def test_the_layers_of_the_architecture_are_the_import_contracts() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("## The layers")[2].partition("\n## ")[0]
    written = {
        found[1]: [set(layer.split(" | ")) for layer in found[2].split(" > ")]
        for found in re.finditer(r"^- `(\w+)`[^:]*:\s+`([^`]+)`", section, flags=re.MULTILINE)
    }
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = {
        contract["containers"][0].removeprefix("txnwatch."): [set(layer.split(" | ")) for layer in contract["layers"]]
        for contract in contracts
        if contract["type"] == "layers"
    }
    assert written == checked
    assert len(checked) == 5


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/invariants.md"])
def test_the_tests_that_the_invariants_link_to_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    references = dict(re.findall(r"^\[(\w+)\]: (\S+)$", text, flags=re.MULTILINE))
    links = re.findall(r"\[(\w+)\]\(((?:\.\./)?tests/[^)]+)\)", text)
    links += [(name, references[key]) for name, key in re.findall(r"\[(\w+)\]\[(\w+)\]", text)]
    assert len(links) == text.count("tests/") - len(re.findall(r"^\[.*tests/", text, flags=re.MULTILINE)) + text.count(
        "]["
    ), "a link to a test has the test's name"
    assert links != []
    assert [f"{path}: {name}" for name, path in links if not _has_test((ROOT / page).parent / path, name)] == []


def test_each_question_of_a_newcomer_is_answered_by_five_functions_that_exist() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("## Four questions")[2].partition("\n## ")[0]
    sources = [path.read_text() for path in (ROOT / "state").glob("**/*.py")]
    answers = [line for line in section.splitlines() if line.endswith(". |")]
    assert len(answers) == 4
    for answer in answers:
        names = [name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", answer)]
        functions = [name for name in names if not name.isupper()]
        assert 0 < len(functions) <= 5, answer
        for name in functions:
            defined = [text for text in sources if re.search(rf"^ *def {name}\(", text, flags=re.MULTILINE)]
            assert defined, name


def test_ten_invariants_come_first() -> None:
    first = (ROOT / "ARCHITECTURE.md").read_text().partition("## Invariants")[2]
    assert len(re.findall(r"^\| .*tests/", first, flags=re.MULTILINE)) == 10


def _has_test(path: Path, name: str) -> bool:
    """Whether a file defines a test, or a planted bug that is in its table of planted bugs."""
    text = path.read_text() if path.is_file() else ""
    wanted = rf"^def {name}\(" if name.startswith("test_") else rf"^class {name}\((?s:.*)^    \({name}, "
    return re.search(wanted, text, flags=re.MULTILINE) is not None


def test_the_runbook_has_every_row_of_the_statements_under_its_own_anchor() -> None:
    text = RUNBOOK
    assert (set(VERDICT_WORDS), set(REASON_MEANS), set(OUTCOME_WORDS)) == (set(Verdict), set(Reason), set(O))
    headings = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert headings == [*VERDICT_WORDS, "watcher"]
    hanging = text.partition("## hanging")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", hanging, flags=re.MULTILINE)
    assert set(rows) == {*REASON_MEANS, *OUTCOME_WORDS}
    for part in text.split("\n## ")[1:-1]:
        assert re.findall(r"^\*\*(Means|Check|Do nothing|Do)\b", part, flags=re.MULTILINE) == [
            "Means",
            "Check",
            "Do",
            "Do nothing",
        ], part[:20]


def test_a_bug_of_kafka_that_is_a_cause_is_named_with_the_releases_that_have_it() -> None:
    causes = [found[1] for found in re.finditer(r"(?<=[(: ])KAFKA-(\d+\S*\s+\S+\s+\S+)", RUNBOOK)]
    assert causes
    bad = [cause for cause in causes if re.match(r"\d+\s+(on|before)\s\d|\d+\s+\((up|\d)", cause) is None]
    assert bad == []
    assert (
        "KAFKA-19999" not in RUNBOOK
    )  # the strict check of a marker's epoch and its fix are both in Kafka 4.2.0 first


def test_no_page_raises_every_feature_to_raise_one() -> None:
    """`upgrade --release-version` raises kraft.version too."""
    for page in (*PAGES, Path("README.md")):
        blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        assert "--release-version" not in "".join(blocks), page
    assert "upgrade --feature transaction.version=2" in RUNBOOK


def test_the_readme_has_a_row_for_each_verdict() -> None:
    table = (ROOT / "README.md").read_text().partition("## What a verdict means")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == [*Verdict]


def test_the_readme_opens_with_the_pictures_of_the_page_and_the_two_commands_follow() -> None:
    text = (ROOT / "README.md").read_text()
    opening, _, rest = text.partition("\n## Two commands\n")
    assert re.findall(r"!\[[^]]+\]\(([^)]+)\)", opening) == ["docs/page.png", "docs/page-incident.png"]
    assert len(opening.splitlines()) <= 20, "the commands are on the first screens"
    assert ("make demo" in rest.partition("\n## ")[0], "make test" in rest.partition("\n## ")[0]) == (True, True)
    written = "".join(file.read_text() for file in (ROOT / "tests" / "browser").glob("test_*.py"))
    assert [name for name in ("page", "page-incident") if f'"{name}"' not in written] == [], "the tests make them"


@pytest.mark.parametrize(("field", "values"), [("verdict", Verdict), ("reason", Reason), ("severity", Severity)])
def test_the_schema_names_each_value_of_a_field(field: str, values: type[StrEnum]) -> None:
    text = next(found["doc"] for found in json.loads(schema_text())["fields"] if found["name"] == field)
    assert [word for word in re.findall(r"\w+", text) if word in set(values)] == [*values]


def test_the_page_about_reloading_names_each_setting_that_is_reloaded() -> None:
    section = (ROOT / "docs" / "stopping.md").read_text().partition("## Reload")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert {name for name in OF_THE_QUERY | AT_ONCE if not name.startswith("abort_")} - named == set()


CHANGES = {
    "the owner became known": "the owner became known",
    "the expected outcome changed": "the [expected outcome]",
    "the verdict has changed": "the verdict, the severity",
    "ten times as many records are hidden": "the number of hidden records is ten times as high",
    "the action changed": "an abort or a fence was decided, or has a result",
    "a consumer group has stopped": "a consumer group has stopped",
    "a consumer group waits for pending offsets": "or waits for its committed offsets",
    "the suggested command changed": "the `suggested_command` changed",
}


def test_the_page_for_consumers_names_each_change_that_causes_an_update() -> None:
    text = (ROOT / "docs" / "consumers.md").read_text()
    changes = " ".join(text.partition("The changes are:")[2].partition("Without such a")[0].split())
    assert CHANGES.keys() == RULES.keys()
    assert [change for change in CHANGES.values() if change not in changes] == []


def test_no_page_installs_from_an_index_what_is_on_none() -> None:
    promised = re.compile(r"pip (?:install|download) (?:-[\w-]+ )*'?txnwatch(?:-demo)?(?![\w./-])")
    assert promised.search("pip install --upgrade txnwatch-demo`")
    assert promised.search("pip install 'txnwatch[jks]'`")
    assert not promised.search("pip install './txnwatch-0.1.0-py3-none-any.whl[spark]'")
    pages = [*PAGES, Path("src/txnwatch_demo/README.md")]
    assert [str(page) for page in pages if promised.search((ROOT / page).read_text())] == []


def test_commands_that_pages_show_are_commands() -> None:
    for page in (*PAGES, Path("README.md")):
        text = (ROOT / page).read_text()
        blocks = "\n".join(re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
        shown = [*re.findall(r"`(txnwatch [^`]*)`", text), *blocks.splitlines()]
        named = [found[1] for line in shown if (found := re.match(r"txnwatch ([a-z][a-z-]*)", line))]
        assert set(named) <= {*COMMANDS, *DISTRIBUTIONS}, page


def test_every_decision_has_context_choice_measurement_and_consequence() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert pages
    for page in pages:
        headings = re.findall(r"^## (.*)$", page.read_text(), flags=re.MULTILINE)
        assert headings == ["Context", "Choice", "Measured", "Consequences"], page.name
