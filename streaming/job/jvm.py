"""The JVM of Spark: its start, its home, the archive of its classes, and the java program.

Law: only functions import PySpark, by its name. So these imports run beside the start of the JVM. And commands for
which an import contract forbids PySpark look here for the java program.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipimport
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import txnwatch
from txnwatch.state.model.errors import ConfigError, SparkError, TxnwatchError, install_command
from txnwatch.state.text import is_secret_name
from txnwatch.streaming.job.spark_conf import (
    JAVA_OPTIONS,
    LOOPBACK,
    SessionSettings,
    is_local,
    is_under_spark_submit,
    port_and_secret,
)

# The start: the JVM begins early, and is awaited where the session is made.
#
# PySpark's `launch_gateway` starts a JVM and waits until it answers. It also connects to a JVM that another program has
# started, as spark-submit does, if two variables have its port and its secret. So here this process is the other
# program (docs/decisions/0032).

# The JVM writes its port and its secret into this file when it answers.
_WHERE_TO_ANSWER: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_ANSWER: Final = "jvm-answer"
_TWO_NUMBERS: Final = struct.Struct(">ii")  # the port, and the length of the secret
_LOOK_S: Final = 0.02
_PROGRAM: Final = Path("bin", "spark-submit")
_ENDS_S: Final = 1.0
# An ignored signal stays ignored in the program that the shell becomes, and in all that this program starts.
_WITHOUT_INTERRUPTS: Final = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")


class StartingJvm:
    """A JVM that starts; `output` is a descriptor for what it writes, None for that of this process.

    Under spark-submit the JVM exists already, and nothing starts.

    Attributes:
        settings: of the session that this JVM gets.

    Raises:
        SparkError: Spark has no program that starts it.
    """

    def __init__(self, settings: SessionSettings, output: int | None = None) -> None:
        self.settings = settings
        self._answer = settings.scratch / _ANSWER
        self._has_answered = False
        self._process = None if is_under_spark_submit(os.environ) else _begun(settings, self._answer, output)

    def gateway(self) -> Any:  # noqa: ANN401 - untyped
        """Waits until the JVM answers, and connects to it.

        Raises:
            PySparkRuntimeError: it has ended.
        """
        launch_gateway = import_module("pyspark.java_gateway").launch_gateway
        if self._process is None:
            return launch_gateway()
        with _variables(port_and_secret(*self._wait())):
            gateway: Any = launch_gateway()
        gateway.proc = self._process
        return gateway

    def _wait(self) -> tuple[int, str]:
        """The port of the JVM and its secret, which is in no file afterwards."""
        assert self._process is not None
        while not self._answer.is_file():
            if self._process.poll() is not None:
                errors = import_module("pyspark.errors")
                raise errors.PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            time.sleep(_LOOK_S)
        answer = self._answer.read_bytes()
        self._answer.unlink()
        self._has_answered = True
        port, length = _TWO_NUMBERS.unpack_from(answer)
        return port, answer[_TWO_NUMBERS.size :][:length].decode()

    def end(self) -> None:
        """Lets a JVM that has answered end by itself, for a second at most; kills it then.

        It may have a SparkContext, with files and executors. It removes them when its standard input ends.
        """
        if self._process is not None and self._has_answered:
            self._end_input()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_S)
        self.kill()

    def kill(self) -> None:
        """Kills the JVM and the programs that start it, unless it has ended."""
        if self._process is None:
            return
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._end_input()

    def _end_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def _begun(settings: SessionSettings, answer: Path, output: int | None) -> subprocess.Popen[bytes]:
    values = arguments_of_the_jvm(settings.values())
    environ = {
        # glibc gives the JVM's many threads separate heaps, which do not shrink.
        "MALLOC_ARENA_MAX": "2",
        # Workers start with `python -m`: a file in the current directory with the name of a module would break them.
        "PYTHONSAFEPATH": "1",
        # Without it Spark looks for an address of this host, and may ask its DNS.
        **({"SPARK_LOCAL_IP": LOOPBACK} if is_local(settings.master) else {}),
        **os.environ,
        "SPARK_CONNECT_MODE": "0",
        _WHERE_TO_ANSWER: str(answer),
    }
    real = installed_spark()
    if is_local(settings.master) and why_not_quick(real) is None:
        home, archive = _quick_home(real, settings.scratch)
        environ |= variables_of_home(home, real, environ)
        values |= class_path(real)
        if archive is not None:
            values[JAVA_OPTIONS] = with_archive(values[JAVA_OPTIONS], archive)
    else:
        home = _home_of_pyspark()
    arguments = [part for key, value in values.items() for part in ("--conf", f"{key}={value}")]
    given = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    program = home / _PROGRAM
    if not program.is_file():
        raise SparkError(f"{program}: expected the program that starts Spark, found no such file")
    # In a process session of its own, the JVM and its workers get no Ctrl-C and no SIGTERM of our process group, so the
    # query can be stopped between batches. They also ignore a SIGINT to each process, for example of systemd. The JVM
    # still ends with this process: it watches its standard input.
    return subprocess.Popen(  # noqa: S603 - the program of Spark
        [*_WITHOUT_INTERRUPTS, str(program), *arguments, *given],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        env=environ,
        start_new_session=True,
    )


_OF_HADOOP: Final = "spark.hadoop."


def arguments_of_the_jvm(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that the JVM may get as arguments, which every user of the machine can read.

    The others are set after its start. A setting of a file system may be a secret whatever its name is: the names of
    Azure's keys and tokens, for example, end with the account. Spark's own settings are secrets only by their names.
    """
    return {key: text for key, text in settings.items() if not key.startswith(_OF_HADOOP) and not is_secret_name(key)}


def _quick_home(real: Path, scratch: Path) -> tuple[Path, Path | None]:
    """The home of the JVM, and the archive of its classes: those of `txnwatch prepare`, or a new home without one."""
    prepared = prepared_for(real)
    if prepared is not None:
        return prepared
    home = scratch / "spark-home"
    make_home(real, home)
    return home, None


def _home_of_pyspark() -> Path:
    return Path(import_module("pyspark.find_spark_home")._find_spark_home())  # noqa: SLF001 - Spark has no public API


@contextlib.contextmanager
def _variables(changed: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process while the block runs, which starts no program."""
    os.environ.update(changed)
    try:
        yield
    finally:
        for name in changed:
            del os.environ[name]


# The home of the JVM of a local master is a directory with links to the real home, without three things that make a
# start slow (docs/decisions/0032).
#
# Spark puts `$SPARK_HOME/python/lib/pyspark.zip` first into the search path of its Python processes. The zip has no
# compiled modules, so each process compiles all that it imports: 0.75 s of CPU for each of the six processes of a
# start. The installed PySpark is the same code, and is compiled.
#
# A session loads the extension that the library for machine learning brings, and with it Scala's reflection.
#
# The JVM looks for each class in one jar after the other, in the order of the directory. So the class path names the
# jars, those with the most classes first, and the directory has only the jar that starts Spark. The order never
# changes, which an archive of the classes needs.

_HOME, _CONF_HOME, _PYTHON = "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON"
_WITHOUT = "python"
_CONF = "conf"
_JARS = "jars"
_STARTING_JAR = "spark-launcher_*.jar"
_WITHOUT_JARS = "spark-mllib_*.jar"
_FIRST = (
    *("spark-catalyst_", "spark-core_", "spark-sql_", "scala-library-", "spark-sql-api_", "log4j-core-"),
    *("jackson-databind-", "hadoop-client-api-", "janino-", "arrow-vector-", "spark-config_", "spark-network-common_"),
    *("hadoop-client-runtime-", "ivy-", "netty-common-", "antlr4-runtime-", "jackson-module-scala_", "jackson-core-"),
    *("netty-transport-4", "spark-common-utils_", "log4j-api-", "commons-compiler-", "netty-buffer-", "py4j-"),
)


def why_not_quick(real: Path) -> str | None:
    """Why the JVM must not get a home of ours instead of `real`, that of the installed PySpark; None if it may.

    If `SPARK_HOME` or `PYSPARK_PYTHON` name another home or another Python, an operator has chosen it.
    """
    chosen, python = os.environ.get(_HOME), os.environ.get(_PYTHON, sys.executable)
    if chosen is not None and Path(chosen).resolve() != real.resolve():
        return f"{_HOME} is {chosen}, and the installed PySpark is {real}"
    if not _is_this(python):
        return f"{_PYTHON} is {python}, and this Python is {sys.executable}"
    if not (real / _WITHOUT / "lib" / "pyspark.zip").is_file():
        return f"{real} is no PySpark that pip has installed: it has no python/lib/pyspark.zip"
    return None


def _is_this(python: str) -> bool:
    """Whether the program is this Python; an environment has it under several names."""
    other, this = Path(python), Path(sys.executable)
    return other.parent.resolve() == this.parent.resolve() and other.resolve() == this.resolve()


def make_home(real: Path, home: Path) -> None:
    """Makes the directory `home` with links to the real one.

    Raises:
        OSError: the directory cannot be made, or exists.
    """
    (home / _JARS).mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name not in {_WITHOUT, _JARS, _CONF}:
            (home / entry.name).symlink_to(entry)
    for jar in (real / _JARS).glob(_STARTING_JAR):
        (home / _JARS / jar.name).symlink_to(jar)


def variables_of_home(home: Path, real: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a JVM that uses this home, and the configuration of the real one, if it ever gets any."""
    return {_HOME: str(home), _CONF_HOME: environ.get(_CONF_HOME, str(real / _CONF))}


def jars_of(real: Path) -> list[Path]:
    """The jars of a session, in the order in which the JVM looks for a class."""
    jars = (jar for jar in (real / _JARS).glob("*.jar") if not jar.match(_WITHOUT_JARS))
    return sorted(jars, key=lambda jar: (_rank(jar), jar))


def _rank(jar: Path) -> int:
    return next((place for place, prefix in enumerate(_FIRST) if jar.name.startswith(prefix)), len(_FIRST))


def class_path(real: Path) -> dict[str, str]:
    """The setting of Spark that names all jars, behind those that an operator has put there."""
    return {"spark.driver.defaultExtraClassPath": os.pathsep.join(map(str, jars_of(real)))}


# The archive of the classes that a start loads (class-data sharing of the JVM), and the home beside it.
#
# With the archive the JVM does not search, read and verify these classes again (docs/decisions/0032). It uses the
# archive only if it is the same JVM, and if the class path has the same jars with the same sizes and times of change.
# Otherwise it starts as without one. So the home is kept beside the archive, and its path never changes.
#
# Law: both are in the Python environment. Who may write there can replace txnwatch itself, so an archive is believed as
# much as the code.
#
# Law: a start never fails because of an archive. What cannot be read is not there.

_PLACE: Final = Path("share", "txnwatch")
_PREFIX: Final = "spark-"
_KEPT_HOME, _NEW, _LOCK = "home", "new.jsa", "lock"
_ABOUT_ARCHIVES: Final = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xshare")
_READABLE: Final = 0o755
_LIBRARY: Final = Path("lib", "server", "libjvm.so")


class Prepared(NamedTuple):
    """What `txnwatch prepare` has made; `archive` is None if only the home is there."""

    home: Path
    archive: Path | None


def installed_spark() -> Path:
    """The home of the installed PySpark; this does not import it."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def prepared_for(real: Path) -> Prepared | None:
    """What is prepared for the jars of this home; None if there is nothing, or if it cannot be read."""
    try:
        place = place_of(real)
        home = place / _KEPT_HOME
        return Prepared(home, next(filter(_is_whole, _archives(place)), None)) if home.is_dir() else None
    except OSError:
        return None


def can_prepare() -> bool:
    """Whether a local master of this environment would start faster with an archive, and has none."""
    real = installed_spark()
    if why_not_quick(real) is not None:
        return False
    prepared = prepared_for(real)
    return prepared is None or prepared.archive is None


def place_of(real: Path) -> Path:
    """The directory of the archive for these jars and this JVM; it may not exist.

    Times count in seconds, as for the JVM: layers of images keep no fractions.

    Raises:
        OSError: a jar cannot be read.
    """
    digest = hashlib.sha256()
    for file in (*jars_of(real), *_files_of_the_jvm()):
        status = file.stat()
        digest.update(f"{file} {status.st_size} {int(status.st_mtime)}\n".encode())
    return Path(sys.prefix) / _PLACE / f"{_PREFIX}{digest.hexdigest()[:16]}"


def existing_place() -> Path:
    """The directory in which the archive, or the directories that lead to it, will be made."""
    place = Path(sys.prefix) / _PLACE
    return next(path for path in (place, *place.parents) if path.is_dir())


def _files_of_the_jvm() -> list[Path]:
    """The library of the JVM, which an update of Java replaces; nothing if there is no Java, as no start works then."""
    try:
        program = Path(java()).resolve()
    except TxnwatchError:
        return []
    return [file for file in (program.parents[1] / _LIBRARY,) if file.is_file()]


def fits(archive: Path, java: str, class_path: str) -> bool:
    """Whether an archive is whole, and holds for this java program and this class path: a JVM has to map it."""
    options = ("-XX:+UseSerialGC", "-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={archive}")
    quiet = "-XX:ErrorFile=/dev/null"  # a JVM crashes on an archive that is cut off, and writes a report
    command = (java, *options, quiet, "-cp", class_path, "-version")
    return archive.is_file() and subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


def _archives(place: Path) -> Iterator[Path]:
    return place.glob("classes-*.jsa")


def _name_of(archive: Path) -> str:
    """It has the size of the archive, because a JVM crashes on an archive that is cut off."""
    return f"classes-{archive.stat().st_size}.jsa"


def _is_whole(archive: Path) -> bool:
    return archive.name == _name_of(archive)


def with_archive(options: str, archive: Path) -> str:
    """The options of a JVM that uses the archive if it fits; unchanged if they have another one, or make one."""
    if any(name in options for name in _ABOUT_ARCHIVES):
        return options
    # Without a line in the output if the archive does not fit.
    return f'{options} -XX:SharedArchiveFile="{archive}" -Xlog:cds*=off'


def options_that_make(archive: Path) -> str:
    """The options of a JVM that writes the archive when it ends."""
    return f'-XX:ArchiveClassesAtExit="{archive}"'


@contextlib.contextmanager
def new_archive(real: Path) -> Iterator[Path]:
    """The path where the block has to write the archive; the archive counts from the end of the block on.

    If the block writes none, the one before stays. A second process waits. Archives for other jars, or for another JVM,
    are removed.

    Raises:
        ConfigError: the directory cannot be written, or a start with a local master would not use the archive.
    """
    if (why := why_not_quick(real)) is not None:
        raise ConfigError(f"no start of Spark would use an archive of classes: {why}")
    with contextlib.ExitStack() as holding:
        with _writing():
            place = place_of(real)
            _make_readable(place.parent)
            lock = holding.enter_context((place.parent / _LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            _keep_home(real, place)
            written = place / _NEW
            written.unlink(missing_ok=True)
        yield written
        with _writing():
            if written.is_file():
                _keep(written, place)
            for other in place.parent.glob(f"{_PREFIX}*"):
                if other != place:
                    shutil.rmtree(other, ignore_errors=True)


def _keep(written: Path, place: Path) -> None:
    with written.open("rb") as file:
        os.fsync(file.fileno())
    written.chmod(0o644)
    kept = written.replace(place / _name_of(written))
    for other in _archives(place):
        if other != kept:
            other.unlink()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        is_denied = exc.errno in {errno.EACCES, errno.EPERM}
        advice = ": run this as the user who has installed txnwatch" if is_denied else ""
        raise ConfigError(
            f"{exc.filename or Path(sys.prefix) / _PLACE}: expected a place for the archive of classes, found: "
            f"{exc.strerror}{advice}"
        ) from exc


def _make_readable(directory: Path) -> None:
    """Makes the directory; every user of the environment may read it, whatever the mask of this one."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(_READABLE)


def _keep_home(real: Path, place: Path) -> None:
    """Makes the home beside the archive, if there is none."""
    _make_readable(place)
    begun = place / f"{_KEPT_HOME}.new"
    shutil.rmtree(begun, ignore_errors=True)
    if not (place / _KEPT_HOME).is_dir():
        make_home(real, begun)
        for directory in (begun, *(path for path in begun.iterdir() if path.is_dir() and not path.is_symlink())):
            directory.chmod(_READABLE)
        begun.replace(place / _KEPT_HOME)


# The search path of Spark's Python processes.
#
# spark-submit may have brought txnwatch as a zip. The process that lists the source of a streaming query does not find
# the files of `--py-files` (Spark 4.3.0, seen with a standalone master). So the zip is in the search path of every
# Python process.


def search_path() -> dict[str, str]:
    """The environment of Spark's Python processes: the zip on the driver, and in the directory of an executor."""
    loader = getattr(txnwatch.__spec__, "loader", None)
    if not isinstance(loader, zipimport.zipimporter):
        return {}
    archive = Path(loader.archive).absolute()
    return {"PYTHONPATH": os.pathsep.join((str(archive), archive.name))}


# The java program, and the packages of the extra `spark`.

_PACKAGES = ("pyspark", "pandas", "pyarrow")


def java() -> str:
    """The path of the java program.

    Raises:
        TxnwatchError: Java is missing.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    if program is None:
        raise TxnwatchError("expected Java 17 or later, found no `java`: install one, or set JAVA_HOME")
    return program


def check_packages(command: str) -> None:
    """Checks that the packages of the extra `spark` are installed, which this command needs.

    Raises:
        ConfigError: a package is missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        problem = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        raise ConfigError(f"{command} needs Spark, and {problem}: {install_command('spark')} (docs/install.md)")
