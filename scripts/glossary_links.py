"""Links each term of the glossary at its first use on a page: `[barrier]`, with its target at the end of the page.

The glossary declares what is linked: its headings, and the other forms in a line `Also: ...` of a section. A form is an
exact noun phrase, in the singular or the plural. A form that begins with an article, as in `a scan`, is linked only
behind an article, because without one the words can be a verb as well. Of two forms the longer one is tried first.

The links are made anew each time, so a page that has them right does not change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# What is no prose: fenced code, comments, headings, links, pictures, code, quoted output, and the targets of links.
_NO_PROSE = re.compile(
    r"(^```.*?^```$|^<!--.*?-->$|^#[^\n]*$|^\[[^\]]+\]: [^\n]*$|^(?: {4,}|:::)[^\n]*$"
    r"|!?\[[^\]]*\]\([^)]*\)|\[[^\]]*\]|`[^`]*`|\"[^\"\n]*\"|<[^>\s][^>]*>)",
    re.MULTILINE | re.DOTALL,
)
_ARTICLE = re.compile(r"^(an?|the) ")


def terms_of(glossary: str) -> dict[str, str]:
    """The anchor of each form of the glossary, as GitHub and the site make it of a heading."""
    found = {}
    for section in glossary.split("\n## ")[1:]:
        term = section.partition("\n")[0]
        also = re.search(r"^Also: (.*?)\.$", section, flags=re.MULTILINE | re.DOTALL)
        for form in [term, *(also[1].split(",") if also else [])]:
            found[" ".join(form.lower().split())] = term.replace("'", "").replace(" ", "-")
    return found


def link_terms(page: str, terms: Mapping[str, str], glossary: str) -> str:
    """A page with each term linked where it is used first; `glossary` is the path of the glossary from the page."""
    anchors = {one: anchor for form, anchor in terms.items() for one in _numbers(_ARTICLE.sub("", form))}
    verbs = {one for form in terms if _ARTICLE.match(form) for one in _numbers(_ARTICLE.sub("", form))}
    forms = "|".join(re.escape(form).replace(r"\ ", r"\s+") for form in sorted(anchors, key=len, reverse=True))
    expression = re.compile(
        rf"(?<![\w\[/'.-])(?P<article>(?:an?|the|no)\s+)?(?P<form>{forms})(?![\w\]/-])(?!'s)", flags=re.IGNORECASE
    )
    targets: dict[str, str] = {}  # the anchor of each text that is linked

    def linked(found: re.Match[str]) -> str:
        text = " ".join(found["form"].split())
        anchor = anchors[text.lower()]
        if anchor in targets.values() or (text.lower() in verbs and not found["article"]):
            return found[0]
        targets[text] = anchor
        return f"{found['article'] or ''}[{found['form']}]"

    parts = _NO_PROSE.split(_without_links(page, glossary))
    parts[::2] = [expression.sub(linked, part) for part in parts[::2]]  # odd parts are no prose
    lines = [
        f"[{text}]: {glossary}#{anchor}" for text, anchor in sorted(targets.items(), key=lambda one: one[0].lower())
    ]
    return "".join(parts).rstrip("\n") + "\n" + "".join(f"\n{line}" for line in lines) + ("\n" if lines else "")


def _numbers(form: str) -> tuple[str, str]:
    """The singular and the plural."""
    return form, form + ("es" if form.endswith(("s", "ch")) else "s")


def _without_links(page: str, glossary: str) -> str:
    target = rf"^\[([^\]]+)\]: {re.escape(glossary)}#\S*\n?"
    forms = re.findall(target, page, flags=re.MULTILINE)
    page = re.sub(target, "", page, flags=re.MULTILINE)
    for form in forms:
        expression = r"\s+".join(re.escape(word) for word in form.split())
        page = re.sub(rf"\[({expression})\](?!\()", r"\1", page)
    return page
