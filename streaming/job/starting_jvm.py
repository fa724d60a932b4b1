"""The JVM of Spark, which starts beside this process: it begins early, and is awaited where the session is made.

PySpark's `launch_gateway` starts a JVM and waits until it answers. It also connects to a JVM that another program has
started, as spark-submit does, if two variables have its port and its secret. So here this process is the other program
(docs/decisions/0032).

Law: this module imports PySpark only when the JVM is awaited, because these imports run beside the start of the JVM.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from txnwatch.state.model.errors import SparkError
from txnwatch.state.text import is_secret_name
from txnwatch.streaming.job.spark_conf import (
    JAVA_OPTIONS,
    LOOPBACK,
    SessionSettings,
    is_local,
    is_under_spark_submit,
    port_and_secret,
)
from txnwatch.streaming.job.spark_home import (
    class_path,
    installed_spark,
    make_home,
    prepared_for,
    variables_of_home,
    why_not_quick,
    with_archive,
)

# The JVM writes its port and its secret into this file when it answers.
_WHERE_TO_ANSWER: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_ANSWER: Final = "jvm-answer"
_TWO_NUMBERS: Final = struct.Struct(">ii")  # the port, and the length of the secret
_LOOK_S: Final = 0.02
_STARTER: Final = Path("bin", "spark-submit")
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
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - see the law

        if self._process is None:
            return launch_gateway()
        with _variables(port_and_secret(*self._wait())):
            gateway: Any = launch_gateway()
        gateway.proc = self._process
        return gateway

    def _wait(self) -> tuple[int, str]:
        """The port of the JVM and its secret, which is in no file afterwards."""
        from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - see the law

        assert self._process is not None
        while not self._answer.is_file():
            if self._process.poll() is not None:
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
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
    program = home / _STARTER
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
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - Spark has no public API for it

    return Path(_find_spark_home())


@contextlib.contextmanager
def _variables(changed: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process while the block runs, which starts no program."""
    os.environ.update(changed)
    try:
        yield
    finally:
        for name in changed:
            del os.environ[name]
