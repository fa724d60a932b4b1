"""Prints the notes of a release: the section of its version in CHANGELOG.md, with links that lead into the repository.

`make wheels` writes them to dist/notes.md. With `--tag` it is an error if the tag is not that of the version, or if
CHANGELOG.md has no section for it. On a forge, a relative link of the notes would lead nowhere: the address of the
repository is that of the variables GITHUB_SERVER_URL and GITHUB_REPOSITORY. Without these the links stay as they are.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_UNRELEASED = "Unreleased"
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)(?=\))|(?<=\]: )(?![a-z]+:|#)(\S+)$", flags=re.MULTILINE)


def section_of(changelog: str, heading: str) -> str | None:
    """The section of a version, followed by the targets of the links that it uses; None if there is none."""
    found = re.search(
        rf"^## \[?{re.escape(heading)}\b.*?\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None:
        return None
    targets = re.findall(r"^(\[[^\]]+\]): (\S+)$", changelog, flags=re.MULTILINE)
    used = [f"{name}: {target}" for name, target in targets if name in " ".join(found[1].split())]
    return "\n".join([found[1].strip(), *([""] if used else []), *used, ""])


def with_repository(text: str, base: str | None) -> str:
    """The text with links to files below `base`."""
    return text if base is None else _LINK.sub(lambda found: f"{base}/{found[1] or found[2]}", text)


def base_of(tag: str | None, environ: Mapping[str, str]) -> str | None:
    """Where the files of a tag are on the forge; None if this does not run there."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY")
    if tag is None or any(name not in environ for name in names):
        return None
    return "/".join([*(environ[name] for name in names), "blob", tag])


def notes_of(version: str, changelog: str, tag: str | None, environ: Mapping[str, str]) -> str:
    """The notes of a version.

    Raises:
        ValueError: the tag is that of another version, or has no section.
    """
    if tag not in {None, f"v{version}"}:
        raise ValueError(f"expected the tag v{version} (pyproject.toml), found {tag}")
    found = section_of(changelog, version)
    if found is None and tag is not None:
        raise ValueError(f"CHANGELOG.md: expected the heading ## {version}, found none")
    return with_repository(found or section_of(changelog, _UNRELEASED) or "", base_of(tag, environ))


def main() -> None:
    """Prints the notes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="the tag of the release")
    tag = parser.parse_args().tag or None
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    try:
        print(notes_of(version, (ROOT / "CHANGELOG.md").read_text(), tag, os.environ), end="")
    except ValueError as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
