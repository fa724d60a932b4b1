"""The health check of the image: whether the metrics server of `txnwatch run` answers."""

from __future__ import annotations

import http.client
import os
import ssl
import sys

_TIMEOUT_S = 10


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


if __name__ == "__main__":
    sys.exit(0 if is_healthy(int(os.environ["TXNWATCH_METRICS_PORT"])) else 1)
