"""The health check of the image: whether the metrics server of `txnwatch run` answers."""

from __future__ import annotations

import http.client
import os
import sys

_TIMEOUT_S = 10


def is_healthy(port: int) -> bool:
    """Whether the process on this port of this container is healthy."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/-/healthy")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if is_healthy(int(os.environ["TXNWATCH_METRICS_PORT"])) else 1)
