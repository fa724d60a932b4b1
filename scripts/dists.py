"""Builds the wheels and the source distributions of a release: `make wheels` writes them to dist.

Two builds of one commit are the same bytes, on any day, in any directory and with any umask. So:
- a build sees the files that git has, with the mode that git has, and nothing that an earlier build has left;
- setuptools is that of deploy/image/build-requirements.txt, by its hash;
- every time in an archive is that of the commit, or of SOURCE_DATE_EPOCH if it is set;
- a wheel is built from the source distribution, so the latter has all that the wheel needs.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = (Path(), Path("src/txnwatch_demo"))
_LOCK = ROOT / "deploy" / "image" / "build-requirements.txt"
_HOOK = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
_EXECUTABLE = 0o100


def epoch_of_commit(root: Path) -> int:
    """When the commit was made, in seconds; SOURCE_DATE_EPOCH if it is set."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given) if given is not None else int(_git(root, "log", "-1", "--format=%ct"))


def build(root: Path, output: Path, epoch_s: int) -> list[Path]:
    """Builds both distributions of the tree `root` into the directory `output`."""
    made: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="txnwatch-dists-") as scratch:
        sources, python = Path(scratch) / "sources", _backend(Path(scratch) / "backend")
        _export(root, sources)
        for project in PROJECTS:
            sdist = _call(python, "build_sdist", sources / project, output, epoch_s)
            _normalize(sdist, epoch_s)
            unpacked = Path(scratch) / "unpacked" / project.name
            shutil.unpack_archive(sdist, unpacked, filter="data")
            (tree,) = unpacked.iterdir()
            made += [_call(python, "build_wheel", tree, output, epoch_s), sdist]
    return made


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout


def _export(root: Path, target: Path) -> None:
    """Copies the files that git has, as they are now, without other bits of their modes."""
    for name in filter(None, _git(root, "ls-files", "-z").split("\0")):
        source, copy = root / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        copy.chmod(0o755 if source.stat().st_mode & _EXECUTABLE else 0o644)


def _backend(place: Path) -> Path:
    """A Python with the locked setuptools and nothing else."""
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--require-hashes", "--requirement", str(_LOCK)], check=True)  # noqa: S603
    return python


def _call(python: Path, hook: str, project: Path, output: Path, epoch_s: int) -> Path:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "PYTHONHASHSEED": "0"}
    command = [str(python), "-c", _HOOK, hook, str(output)]
    done = subprocess.run(  # noqa: S603
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, umask=0o022
    )
    if done.returncode:
        sys.exit(f"{hook} of {project}: {done.stdout}{done.stderr}")
    return output / done.stdout.splitlines()[-1]


def _normalize(sdist: Path, epoch_s: int) -> None:
    """Writes the archive again: its members in order, without the time, the user and the group of this build."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch_s))


def main() -> None:
    """Builds into the directory that is named."""
    output = Path(sys.argv[1]).absolute()
    output.mkdir(parents=True, exist_ok=True)
    for path in build(ROOT, output, epoch_of_commit(ROOT)):
        print(path.name)


if __name__ == "__main__":
    main()
