"""Downloads Kafka's jars from Maven Central with the Ivy that PySpark ships, and caches them.

The key of the cache is Kafka's version and the list of modules. A directory without its stamp is an unfinished download
and is downloaded again. Ivy checks each jar against its published checksum.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from txnwatch.java import java
from txnwatch.state.model.errors import TxnwatchError

KAFKA_VERSION = "4.3.1"
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

    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise TxnwatchError("expected the Ivy jar that PySpark ships, found none: reinstall pyspark")
    return found[-1]
