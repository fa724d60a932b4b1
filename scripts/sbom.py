"""Prints the software bill of materials of a release, as CycloneDX JSON: `make wheels` writes it to dist.

It has what the image is made of, by its lock file, and the files of other projects that the page has. The same commit
gives the same bytes. It does not have the packages of Debian and the Java of the image: a scanner of images finds them.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dists import ROOT, epoch_of_commit

_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", flags=re.MULTILINE)


def components(lock: str, vendored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts: those of a lock file of pip, and the vendored packages."""
    found = [
        {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name.lower()}@{version}"}
        for name, version in _LOCKED.findall(lock)
    ]
    return sorted([*found, *map(_vendored, vendored)], key=lambda one: (one["name"], one["version"]))


def _vendored(package: dict[str, Any]) -> dict[str, Any]:
    algorithm, _, digest = package["integrity"].partition("-")
    return {
        "type": "library",
        "name": package["name"],
        "version": package["version"],
        "purl": f"pkg:npm/{package['name']}@{package['version']}",
        "licenses": [{"license": {"id": package["license"]}}],
        "hashes": [{"alg": algorithm.upper().replace("SHA", "SHA-"), "content": base64.b64decode(digest).hex()}],
    }


def bill(root: Path, epoch_s: int) -> dict[str, Any]:
    """The whole document."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = (root / "deploy" / "image" / "requirements.txt").read_text(encoding="utf-8")
    vendor = root / "src" / "txnwatch" / "page" / "static" / "vendor.lock.toml"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch_s, UTC).isoformat(),
            "component": {
                "type": "application",
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"expression": project["license"]}],
            },
        },
        "components": components(lock, tomllib.loads(vendor.read_text(encoding="utf-8"))["package"]),
    }


def main() -> None:
    """Prints it."""
    print(json.dumps(bill(ROOT, epoch_of_commit(ROOT)), indent=1))


if __name__ == "__main__":
    main()
