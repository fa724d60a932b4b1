"""The archive of the classes that a start loads (class-data sharing of the JVM), and the home of Spark beside it.

With an archive the JVM does not search, read and verify these classes again (docs/decisions/0032). It uses the archive
only if it is the same JVM, and if the class path has the same jars with the same sizes and times of change. Otherwise
it starts as without one. So the home is kept beside the archive, and its path never changes.

Law: both are in the Python environment. Who may write there can replace txnwatch itself, so an archive is believed as
much as the code.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.job.search_paths import can_be_quick, jars_of, make_home

_PLACE: Final = Path("share", "txnwatch")
_PREFIX: Final = "spark-"
_HOME, _ARCHIVE, _LOCK = "home", "classes.jsa", "lock"
# Without a line in the output of the JVM if the archive does not fit.
_QUIET: Final = "-Xlog:cds*=off"


def installed_spark() -> Path:
    """The home of the installed PySpark; this does not import it."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def can_prepare() -> bool:
    """Whether a local master of this environment would start faster with an archive, and has none."""
    real = installed_spark()
    return can_be_quick(real) and archive_in(place_of(real)) is None


def place_of(real: Path) -> Path:
    """The directory of the archive for these jars; it may not exist."""
    digest = hashlib.sha256()
    for jar in jars_of(real):
        found = jar.stat()
        digest.update(f"{jar} {found.st_size} {found.st_mtime_ns}\n".encode())
    return Path(sys.prefix) / _PLACE / f"{_PREFIX}{digest.hexdigest()[:16]}"


def home_in(place: Path) -> Path | None:
    """The home beside the archive; None if nothing is prepared."""
    home = place / _HOME
    return home if home.is_dir() else None


def archive_in(place: Path) -> Path | None:
    """The archive; None if there is none."""
    archive = place / _ARCHIVE
    return archive if archive.is_file() else None


def options_with(archive: Path) -> str:
    """The options of a JVM that uses the archive if it fits."""
    return f'-XX:SharedArchiveFile="{archive}" {_QUIET}'


def options_that_make(archive: Path) -> str:
    """The options of a JVM that writes the archive when it ends."""
    return f'-XX:ArchiveClassesAtExit="{archive}" {_QUIET}'


@contextlib.contextmanager
def new_archive(real: Path) -> Iterator[Path]:
    """The path where the block has to write the archive; the archive counts from the end of the block on.

    A second process waits. Archives for other jars are removed.

    Raises:
        ConfigError: the directory cannot be written.
    """
    place = place_of(real)
    with contextlib.ExitStack() as holding:
        with _writing(place):
            place.mkdir(parents=True, exist_ok=True)
            lock = holding.enter_context((place / _LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            _keep_home(real, place)
            written = place / f"{_ARCHIVE}.new"
            written.unlink(missing_ok=True)
        yield written
        with _writing(place):
            written.replace(place / _ARCHIVE)
            for other in place.parent.glob(f"{_PREFIX}*"):
                if other != place:
                    shutil.rmtree(other, ignore_errors=True)


@contextlib.contextmanager
def _writing(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise ConfigError(
            f"{place}: expected a directory for the archive of classes that can be written, found: {exc.strerror}: run "
            "this as the user who has installed txnwatch"
        ) from exc


def _keep_home(real: Path, place: Path) -> None:
    """Makes the home beside the archive, if there is none."""
    begun = place / f"{_HOME}.new"
    shutil.rmtree(begun, ignore_errors=True)
    if home_in(place) is None:
        make_home(real, begun)
        begun.replace(place / _HOME)
