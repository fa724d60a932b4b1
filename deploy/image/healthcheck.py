"""The health check of the image: whether the metrics server of `txnwatch run` answers.

A container of another command has no metrics server, so it is always healthy: an executor of Spark, or `txnwatch list`.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

_TIMEOUT_S = 10
_FIRST_PROCESS = Path("/proc/1/cmdline")
_PROGRAMS = ("txnwatch", "entrypoint.py")
_MAIN_OF_SPARK_SUBMIT = "txnwatch_run.py"
_OF_THE_ENTRY_POINT = frozenset({"tini", "entrypoint.py"})  # the second one if Docker's own init runs before


def has_metrics(args: Sequence[str]) -> bool:
    """Whether to expect a metrics server in a container whose first process has these arguments.

    The entry point runs tini with the command. An unknown first process may be that of a namespace that the container
    shares, for example `/pause`. So only a command of the entry point that is no `run` has no metrics server.
    """
    names = [arg.rpartition("/")[2] for arg in args]
    is_run = any((program, "run") in pairwise(names) for program in _PROGRAMS) or _MAIN_OF_SPARK_SUBMIT in names
    return is_run or _OF_THE_ENTRY_POINT.isdisjoint(names[:4])


def is_healthy(port: int) -> bool:
    """Whether the process on this port of this container is healthy; it may ask for TLS, a user and a certificate."""
    # Nothing secret is sent, and the certificate is for the name that Prometheus uses.
    unverified = ssl._create_unverified_context()  # noqa: S323, SLF001
    return _answers(http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)) or _answers(
        http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_S, context=unverified)
    )


def _answers(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.connect()
        return _is_served(connection)
    except OSError:
        return False
    finally:
        connection.close()


def _is_served(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/-/healthy")
        return connection.getresponse().status in {http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED}
    except TimeoutError:
        return False
    except OSError:
        # A server that requires a certificate of the client refuses after the client's handshake is complete: with an
        # alert, or with a reset that removes the alert. The process has answered the handshake, so it is healthy.
        return isinstance(connection, http.client.HTTPSConnection)
    except http.client.HTTPException:
        return False


def main() -> int:
    """The exit code: 0 if healthy."""
    args = _FIRST_PROCESS.read_text(errors="replace").split("\0")
    return 0 if not has_metrics(args) or is_healthy(int(os.environ["TXNWATCH_HTTP_PORT"])) else 1


if __name__ == "__main__":
    sys.exit(main())
