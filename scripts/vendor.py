"""Fetches the files of other projects that the page has, as vendor.lock.toml names them, and checks each hash.

Runs only when somebody changes the lock: `python scripts/vendor.py`. npm downloads the packages; nothing of them runs.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parents[1] / "src" / "txnwatch" / "page" / "static"
LOCK = STATIC / "vendor.lock.toml"


def packages(lock: Path) -> list[dict[str, Any]]:
    """The packages of a lock file."""
    found: list[dict[str, Any]] = tomllib.loads(lock.read_text())["package"]
    return found


def fetched(package: dict[str, Any]) -> dict[str, bytes]:
    """The files of a package that its lock names, by their new name.

    Raises:
        ValueError: the package or a file has another hash than in the lock.
        OSError, CalledProcessError: it cannot be downloaded.
    """
    wanted = f"{package['name']}@{package['version']}"
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(  # noqa: S603 - the arguments are those of the lock
            ["npm", "pack", "--silent", "--ignore-scripts", wanted],  # noqa: S607
            cwd=directory,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )
        (archive,) = Path(directory).glob("*.tgz")
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if integrity != package["integrity"]:
            raise ValueError(f"{wanted}: expected {package['integrity']}, found {integrity}")
        with tarfile.open(archive) as tar:
            return {file["to"]: _member(tar, file) for file in package["file"]}


def _member(tar: tarfile.TarFile, file: dict[str, str]) -> bytes:
    member = tar.extractfile(f"package/{file['from']}")
    content = member.read() if member is not None else b""
    digest = hashlib.sha256(content).hexdigest()
    if digest != file["sha256"]:
        raise ValueError(f"{file['from']}: expected {file['sha256']}, found {digest}")
    return content


def main() -> int:
    """Writes every file of the lock."""
    for package in packages(LOCK):
        for name, content in fetched(package).items():
            (STATIC / name).write_bytes(content)
            print(f"{name}: {package['name']} {package['version']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
