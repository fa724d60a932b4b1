"""Links between the pages of the documentation."""

from __future__ import annotations

import re


def link_pages(text: str) -> str:
    """Returns a description from the code, with each name of a page as a link."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1.md](\1.md)", text)
