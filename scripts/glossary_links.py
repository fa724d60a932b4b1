"""Links each term of the glossary at its first use on a page: `[barrier]`, with its target at the end of the page.

The links are made anew each time, so a page that has them right does not change.
"""

from __future__ import annotations

import re

# Each term, and the forms of it that a page may use. A form that is also a usual word excludes the usual meaning.
TERMS = {
    "absorbed data": r"absorbed data|absorbed|absorbs",
    "affected consumer group": r"affected (?:consumer )?groups?",
    "barrier": r"barriers?",
    "candidate": r"candidates?",
    "census": r"census(?:es)?",
    "coordinators' log": r"coordinators' log",
    "epoch": r"producer epochs?|(?<!leader\s)(?<!coordinator\s)epochs?(?!\smilliseconds)",
    "expected outcome": r"expected outcomes?",
    "fresh read": r"fresh reads?",
    "gap": r"gaps?",
    "hanging transaction": r"hanging (?:Kafka )?transactions?|hangs?",
    "heartbeat": r"heartbeats?",
    "hidden partition": r"hidden (?:partition|topic)s?",
    "incident": r"incidents?",
    "last stable offset": r"last stable offsets?",
    "live transaction": r"live transactions?",
    "marker": r"markers?",
    "micro-batch": r"micro-batch(?:es)?",
    "participant": r"participants?",
    "pinned partition": r"pinned partitions?",
    "scan": r"(?:scans?|scanned)(?! interval)",
    "span": r"spans?",
    "stray write": r"stray writes?",
    "unproven": r"unproven",
    "watcher": r"watchers?",
}
_SPACE = r"\s+"  # a term may be at the end of a line
_EXPRESSIONS = {
    term: re.compile(rf"(?<![\w\[/'.-])(?:{forms.replace(' ', _SPACE)})(?![\w\]/-])(?!'s)", re.IGNORECASE)
    for term, forms in TERMS.items()
}
# What is no prose: fenced code, comments, headings, links, pictures, code, quoted output, and the targets of links.
_NO_PROSE = re.compile(
    r"(^```.*?^```$|^<!--.*?-->$|^#[^\n]*$|^\[[^\]]+\]: [^\n]*$|^(?: {4,}|:::)[^\n]*$"
    r"|!?\[[^\]]*\]\([^)]*\)|\[[^\]]*\]|`[^`]*`|\"[^\"\n]*\"|<[^>\s][^>]*>)",
    re.MULTILINE | re.DOTALL,
)


def link_terms(page: str, glossary: str) -> str:
    """A page with each term linked where it is used first; `glossary` is the path of the glossary from the page."""
    page = _without_links(page, glossary)
    parts = _NO_PROSE.split(page)  # odd parts are no prose
    targets: dict[str, str] = {}
    for term, expression in _EXPRESSIONS.items():
        for at in range(0, len(parts), 2):
            found = expression.search(parts[at])
            if found is not None:
                form = " ".join(found[0].split())
                if form.lower() in {known.lower() for known in targets}:
                    break
                targets[form] = f"{glossary}#{anchor(term)}"
                parts[at : at + 1] = [parts[at][: found.start()], f"[{found[0]}]", parts[at][found.end() :]]
                break
    lines = [f"[{form}]: {target}" for form, target in sorted(targets.items(), key=lambda one: one[0].lower())]
    return "".join(parts).rstrip("\n") + "\n" + "".join(f"\n{line}" for line in lines) + ("\n" if lines else "")


def anchor(term: str) -> str:
    """The anchor of a term in the glossary, as GitHub and the site make it of a heading."""
    return term.replace("'", "").replace(" ", "-")


def _without_links(page: str, glossary: str) -> str:
    target = rf"^\[([^\]]+)\]: {re.escape(glossary)}#\S*\n?"
    forms = re.findall(target, page, flags=re.MULTILINE)
    page = re.sub(target, "", page, flags=re.MULTILINE)
    for form in forms:
        expression = r"\s+".join(re.escape(word) for word in form.split())
        page = re.sub(rf"\[({expression})\](?!\()", r"\1", page)
    return page
