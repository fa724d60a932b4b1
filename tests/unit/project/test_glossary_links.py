"""Terms of the glossary are linked where they are meant, and not where a page uses the word in another sense."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
GLOSSARY = "docs/glossary.md"


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("glossary_links")


@pytest.fixture
def terms(links: ModuleType) -> dict[str, str]:
    found: dict[str, str] = links.terms_of((ROOT / GLOSSARY).read_text())
    return found


NOT_MEANT = [
    "a server that hangs up",
    "A transaction can hang on such a topic.",
    "the code that makes a transaction hang",
    "a transaction: one that hangs, is late, or waits",
    "To end what hangs, ask the owners.",
    "its transaction seems to hang",
    "raise the read limits, or scan fewer topics",
    "some topics are too large to scan",
    "how many topics txnwatch scans",
    "topics whose whole name matches are scanned",
    "The producer's next transaction absorbs it.",
    "the next transaction absorbed data that no transaction owned",
    "the next transaction absorbed the data",
    "Times are epoch milliseconds.",
    "the epoch of a batch",
    "`txnwatch find-hanging transactions`",
    '"the marker" is a quotation',
    "the watcher's log",
]


@pytest.mark.parametrize("text", NOT_MEANT)
def test_a_word_in_another_sense_is_not_linked(links: ModuleType, terms: dict[str, str], text: str) -> None:
    assert links.link_terms(f"{text}\n", terms, GLOSSARY) == f"{text}\n"


MEANT = {
    "a hanging transaction": ("a [hanging transaction]", "hanging transaction", "hanging-transaction"),
    "Hanging transactions stop readers.": (
        "[Hanging transactions] stop readers.",
        "Hanging transactions",
        "hanging-transaction",
    ),
    "It proves the hang twice.": ("It proves the [hang] twice.", "hang", "hanging-transaction"),
    "A hang": ("A [hang]", "hang", "hanging-transaction"),
    "the\nhangs of a day": ("the\n[hangs] of a day", "hangs", "hanging-transaction"),
    "the absorbed data": ("the [absorbed data]", "absorbed data", "absorbed-data"),
    "The scan reads headers.": ("The [scan] reads headers.", "scan", "scan"),
    "the scan interval": ("the [scan interval]", "scan interval", "scan"),
    "two censuses": ("two [censuses]", "censuses", "census"),
    "the coordinators' log": ("the [coordinators' log]", "coordinators' log", "coordinators-log"),
    "one leader epoch": ("one [leader epoch]", "leader epoch", "producer-epoch"),
    "a producer\nepoch": ("a [producer\nepoch]", "producer epoch", "producer-epoch"),
}


@pytest.mark.parametrize(("text", "linked", "form", "anchor"), [(text, *made) for text, made in MEANT.items()])
def test_a_term_is_linked_with_its_target(
    links: ModuleType, terms: dict[str, str], text: str, linked: str, form: str, anchor: str
) -> None:
    assert links.link_terms(f"{text}\n", terms, GLOSSARY) == f"{linked}\n\n[{form}]: {GLOSSARY}#{anchor}\n"


def test_only_the_first_use_is_linked_and_a_second_run_changes_nothing(
    links: ModuleType, terms: dict[str, str]
) -> None:
    page = "# A marker\n\nA marker, `a marker`, and markers.\n"
    linked = links.link_terms(page, terms, GLOSSARY)
    assert linked == f"# A marker\n\nA [marker], `a marker`, and markers.\n\n[marker]: {GLOSSARY}#marker\n"
    assert links.link_terms(linked, terms, GLOSSARY) == linked


def test_the_forms_of_the_glossary_are_its_headings_and_its_lines_also(links: ModuleType) -> None:
    glossary = "# Glossary\n\n## coordinators' log\n\nText. Also: no form.\n\nAlso: log of\nthe Coordinators, a log.\n"
    assert links.terms_of(glossary) == dict.fromkeys(
        ("coordinators' log", "log of the coordinators", "a log"), "coordinators-log"
    )
