"""An archive of the classes that a broker loads: a JVM that maps it starts with 40 % less CPU time.

Java calls this class-data sharing. A JVM writes the archive as it ends. The archive holds for this JVM and for its
class path: the same jars, unchanged, in the same order. The first process with new jars makes it, beside the jars. If
none can be made, for example in a read-only directory, everything runs without it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from txnwatch.java import java
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.streaming.job.prepared_home import fits
from txnwatch_demo.embedded.jars import Progress

# What this process has found, by directory of jars.
ARCHIVES: dict[Path, Path | None] = {}


def class_options(jars: Path, *others: Path) -> list[str]:
    """The options of a JVM: every jar of a directory, and the archive beside them if `prepare_archive` has one.

    Args:
        jars: the directory of the jars.
        others: jars of other directories, which come after them.
    """
    archive = ARCHIVES.get(jars)
    # The JVM looks at the archive once more. A line about it must not be in the output of a tool.
    sharing = [] if archive is None else [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]
    return [*sharing, "-cp", _class_path(jars, *others)]


def prepare_archive(jars: Path, write: Callable[[str], None], progress: Progress = lambda _: None) -> None:
    """Finds the archive beside these jars, or makes it; once in a process.

    Args:
        jars: the directory of the jars.
        write: runs a JVM with `class_options` and the given option; the JVM writes the archive as it ends.
        progress: shows a line if the archive must be made.
    """
    if jars in ARCHIVES:
        return
    archive = jars / "classes.jsa"
    try:
        if not _fits(archive):
            with FileLock(jars / "classes.lock"):  # another process may make it now
                if not _fits(archive):
                    progress("preparing the classes of Kafka (a few seconds, once)")
                    _make(archive, write)
    except (OSError, TxnwatchError):
        ARCHIVES[jars] = None
    else:
        ARCHIVES[jars] = archive


def _make(archive: Path, write: Callable[[str], None]) -> None:
    partial = archive.with_suffix(".partial")
    try:
        write(f"-XX:ArchiveClassesAtExit={partial}")
        if not _fits(partial):
            raise TxnwatchError(f"expected {partial} to be an archive of classes")
        partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)


def _fits(archive: Path) -> bool:
    """Whether the archive is whole, and holds for this JVM and these jars."""
    return fits(archive, java(), _class_path(archive.parent))


def _class_path(jars: Path, *others: Path) -> str:
    return ":".join(str(jar) for jar in [*sorted(jars.glob("*.jar")), *others])
