"""Kafka's jars, and beside them an archive of the classes that a broker loads.

The Ivy that PySpark ships downloads them from Maven Central into a cache. The key of the cache is Kafka's version and
the list of modules. A directory without its stamp is an unfinished download and is downloaded again. Ivy checks each
jar against its published checksum.

A JVM that maps the archive starts with 40 % less CPU time. Java calls this class-data sharing. A JVM writes the archive
as it ends. The archive holds for this JVM and for its class path: the same jars, unchanged, in the same order. The
first process with new jars makes it. If none can be made, for example in a read-only directory, everything runs without
it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from txnwatch.state.model.errors import TxnwatchError
from txnwatch.streaming.job.jvm import fits, java

KAFKA_VERSION = "4.4.0"
SCALA_VERSION = "2.13"
_REPOSITORY = "https://repo1.maven.org/maven2/"
_LOG4J_BINDING = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
_OLD_LOG4J_BINDING = ("org.slf4j", "slf4j-reload4j", "1.7.36")
_STAMP = ".complete"

Progress = Callable[[str], None]


def cache_directory() -> Path:
    """The directory of the cache: TXNWATCH_CACHE, else `txnwatch` in the user's cache directory."""
    configured = os.environ.get("TXNWATCH_CACHE")
    base = Path(configured) if configured else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base if configured else base / "txnwatch"


def kafka_jars(version: str = KAFKA_VERSION, progress: Progress = lambda _: None) -> Path:
    """The directory with the jars of one Kafka version; downloads them if necessary.

    Raises:
        TxnwatchError: Java or PySpark is missing, or the download fails.
    """
    return jars(f"kafka-{version}", _modules(version), progress)


def jars(name: str, modules: tuple[tuple[str, str, str], ...], progress: Progress = lambda _: None) -> Path:
    """The directory with modules (organisation, name, revision) and their dependencies; downloads if necessary.

    Raises:
        TxnwatchError: Java or PySpark is missing, or the download fails.
    """
    key = hashlib.sha256(repr(modules).encode()).hexdigest()[:12]
    directory = cache_directory() / f"{name}-{key}"
    if (directory / _STAMP).exists():
        return directory
    progress(f"downloading {name} from Maven Central (about 55 MB, once)")
    cache_directory().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_directory() / "download.lock"):  # another process may download the same jars
        if not (directory / _STAMP).exists():
            _download(modules, directory)
    return directory


def _download(modules: tuple[tuple[str, str, str], ...], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    partial = directory / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    _retrieve(modules, partial)
    for jar in partial.iterdir():
        jar.replace(directory / jar.name)
    partial.rmdir()
    (directory / _STAMP).touch()


def _modules(version: str) -> tuple[tuple[str, str, str], ...]:
    binding = _OLD_LOG4J_BINDING if int(version.split(".", maxsplit=1)[0]) < 4 else _LOG4J_BINDING
    return (
        ("org.apache.kafka", f"kafka_{SCALA_VERSION}", version),
        ("org.apache.kafka", "kafka-tools", version),
        binding,
    )


def _retrieve(modules: tuple[tuple[str, str, str], ...], target: Path) -> None:
    ivy = cache_directory() / "ivy"
    ivy.mkdir(parents=True, exist_ok=True)
    settings = ivy / "settings.xml"
    # Only Maven Central and a separate cache: a POM without its jar in the user's ~/.m2 can break the resolution.
    settings.write_text(
        f'<ivysettings><settings defaultResolver="central"/><caches defaultCacheDir="{ivy / "cache"}"/>'
        f'<resolvers><ibiblio name="central" m2compatible="true" root="{_repository()}"/></resolvers></ivysettings>'
    )
    wanted = ivy / "modules.xml"
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{revision}" conf="default->default"/>'
        for group, name, revision in modules
    )
    wanted.write_text(
        '<ivy-module version="2.0"><info organisation="txnwatch" module="embedded"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    command = [
        *(java(), "-jar", str(_ivy_jar()), "-settings", str(settings), "-ivy", str(wanted)),
        *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle"),
        *("-confs", "default", "-error"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode != 0 or not target.is_dir():
        last = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise TxnwatchError(f"could not download jars from {_repository()}: " + " | ".join(last))


def _repository() -> str:
    return os.environ.get("TXNWATCH_MAVEN_REPOSITORY", _REPOSITORY)


def _ivy_jar() -> Path:
    import pyspark  # noqa: PLC0415 - the import takes 0.5 s, only a download needs it

    ivy_jars = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not ivy_jars:
        raise TxnwatchError("expected the Ivy jar that PySpark ships, found none: reinstall pyspark")
    return ivy_jars[-1]


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
