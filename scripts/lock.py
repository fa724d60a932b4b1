"""Writes the lock files of the image: `make lock`. ARGS=--upgrade takes the newest versions that pyproject.toml allows.

Without `--upgrade` a version stays as it is while pyproject.toml allows it. `build-requirements.txt` is for the source
distributions that the image builds, and is not in the image.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGE = ROOT / "deploy" / "image"
EXTRAS = ("aws", "jks", "registry", "spark")
_HEADER = "# Written by `make lock` from pyproject.toml.\n"


def sources() -> dict[str, list[str]]:
    """The requirements of each lock file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {
        "build-requirements.txt": project["build-system"]["requires"],
        "requirements.txt": [
            *project["project"]["dependencies"],
            *(line for extra in EXTRAS for line in project["project"]["optional-dependencies"][extra]),
        ],
    }


def lock(name: str, requirements: list[str], *flags: str) -> None:
    """Writes one lock file: every requirement and what it needs, with hashes, for all platforms."""
    output = IMAGE / name
    command = ["uv", "pip", "compile", "-", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--quiet", "--output-file", str(output), *flags]
    subprocess.run(command, input="\n".join(requirements), text=True, check=True)  # noqa: S603 - fixed arguments
    output.write_text(_HEADER + output.read_text())


def main() -> None:
    """Writes both lock files."""
    for name, requirements in sources().items():
        lock(name, requirements, *sys.argv[1:])


if __name__ == "__main__":
    main()
