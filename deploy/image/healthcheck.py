"""The health check of the image: whether the metrics server of `txnwatch run` answers."""

from __future__ import annotations

import http.client
import os
import ssl
import sys

_TIMEOUT_S = 10


def is_healthy(port: int) -> bool:
    """Whether the process on this port of this container is healthy; it may ask for TLS and for a user."""
    # Nothing secret is sent, and the certificate is for the name that Prometheus uses.
    unverified = ssl._create_unverified_context()  # noqa: S323, SLF001
    return _answers(http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)) or _answers(
        http.client.HTTPSConnection("127.0.0.1", port, timeout=_TIMEOUT_S, context=unverified)
    )


def _answers(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/-/healthy")
        return connection.getresponse().status in {http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED}
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if is_healthy(int(os.environ["TXNWATCH_METRICS_PORT"])) else 1)
